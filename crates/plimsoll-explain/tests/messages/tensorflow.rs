//! TensorFlow's allocators: messages, dumps with and without their head and tail, and what is no failure.

use super::{Case, case};
use plimsoll_explain::VerdictKind::*;

pub(super) const CASES: &[Case] = &[
    case(
        "an old shape without a type",
        Full,
        &[],
        &["Healthy"],
        "ResourceExhaustedError (see above for traceback): OOM when allocating tensor with shape[256,1024,7,7]\n\
         \t [[Node: gradients/conv5/Conv2D_grad = Conv2DBackpropInput[T=DT_FLOAT]]]",
    ),
    case(
        "a shape of 10 GiB",
        TooBig,
        &["make the one tensor"],
        &[],
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[40,8,2896,2896] and \
         type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [Op:BatchMatMulV2]",
    ),
    case(
        "no size at all",
        Full,
        &[],
        &["Healthy"],
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: {{function_node __wrapped__AddV2_device_/job:localhost/\
         replica:0/task:0/device:GPU:0}} failed to allocate memory [Op:AddV2]",
    ),
    case(
        "figures on one line",
        TooBig,
        &[],
        &["Healthy"],
        "2019-01-02 10:00:00.1: I tensorflow/core/common_runtime/bfc_allocator.cc:647] Stats: Limit: 7820083200 InUse: 7711229952 \
         MaxInUse: 7790000128 NumAllocs: 3111 MaxAllocSize: 3221225472\n2019-01-02 10:00:00.2: W tensorflow/core/framework/op_kernel.cc:1275] OP_REQUIRES \
         failed at conv_ops.cc:693 : Resource exhausted: OOM when allocating tensor with shape[64,256,56,56] and type float on \
         /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc",
    ),
    case(
        "a dump cut after its request",
        TooBig,
        &["make the one tensor"],
        &["Healthy"],
        "2020-05-14 07:18:40.243934: I tensorflow/core/common_runtime/bfc_allocator.cc:957] Bin for 9.50GiB was 256.00MiB, Chunk State:\n\
         2020-05-14 07:18:40.243949: I tensorflow/core/common_runtime/bfc_allocator.cc:970] Next region of size 1048576\n\
         2020-05-14 07:18:40.243962: I tensorflow/core/common_runtime/bfc_allocator.cc:990] InUse at 1203be0000 of size 1280 next 1\n",
    ),
    case(
        "a cut dump of a small request",
        Full,
        &["TF_CPP_MIN_LOG_LEVEL"],
        &["Healthy"],
        "2021-03-04 07:18:40.2: W tensorflow/core/common_runtime/bfc_allocator.cc:456] Allocator (GPU_0_bfc) ran out of memory trying to \
         allocate 24.00MiB (rounded to 25165824)requested by op model/conv/Conv2D\n\
         2021-03-04 07:18:40.3: I tensorflow/core/common_runtime/bfc_allocator.cc:1058] Next region of size 1048576\n",
    ),
    case(
        "a reservation that was tried again",
        Healthy,
        &[],
        &[],
        "2022-01-24 16:22:13.0: I tensorflow/stream_executor/cuda/cuda_driver.cc:739] failed to allocate 3.66G (3929014272 bytes) from \
         device: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n2022-01-24 16:22:14.0: I tensorflow/stream_executor/cuda/cuda_driver.cc:739] failed to allocate 3.29G \
         (3536112640 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory\nEpoch 1/10\n",
    ),
    case(
        "not a failure",
        Healthy,
        &[],
        &[],
        "2020-04-29 16:25:36.5: W tensorflow/core/common_runtime/bfc_allocator.cc:245] Allocator (GPU_0_bfc) ran out of memory trying to \
         allocate 2.21GiB with freed_by_count=0. The caller indicates that this is not a failure, but may mean that there could be \
         performance gains if more memory were available.\n",
    ),
    case(
        "a warning of the host",
        Healthy,
        &[],
        &[],
        "2020-04-29 16:25:36.5: W tensorflow/core/framework/cpu_allocator_impl.cc:82] Allocation of 1207959552 exceeds 10% of free system memory.\n",
    ),
    case(
        "no handle after refusals",
        Full,
        &[],
        &["Healthy"],
        "2019-07-21 23:23:06.2: E tensorflow/stream_executor/cuda/cuda_driver.cc:828] failed to allocate 64.00M (67108864 bytes) from \
         device: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n2019-07-21 23:23:06.3: E tensorflow/stream_executor/cuda/cuda_dnn.cc:329] Could not create cudnn handle: \
         CUDNN_STATUS_ALLOC_FAILED\n",
    ),
    case(
        "TensorFlow 1 without cuBLAS",
        Full,
        &["nvidia-smi"],
        &["got no memory"],
        "tensorflow.python.framework.errors_impl.InternalError: Blas GEMM launch failed : a.shape=(100, 784), b.shape=(784, 256), m=100, \
         n=256, k=784",
    ),
    case(
        "chunks without head and tail",
        Full,
        &[],
        &["Healthy"],
        "2018-06-09 22:01:01.7: I tensorflow/core/common_runtime/bfc_allocator.cc:665] Chunk at 0000000501D69200 of size 256\n\
         2018-06-09 22:01:01.8: I tensorflow/core/common_runtime/bfc_allocator.cc:665] Chunk at 0000000501D69300 of size 256\n",
    ),
    case(
        "a shape as TensorFlow 0.5 wrote it",
        Full,
        &["nvidia-smi"],
        &[],
        "tensorflow.python.framework.errors.ResourceExhaustedError: OOM when allocating tensor with shapedim { size: 5000 } dim { size: 28 } \
         dim { size: 28 } dim { size: 64 }",
    ),
];
