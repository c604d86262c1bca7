"""The workloads in TensorFlow, as functions of variables, without the overhead of Keras.

`function` is `tf.function`, `xla` the same with `jit_compile=True`. Adam is TensorFlow's fused kernel. Where
lengths vary, `signature` is a `tf.function` traced once for all lengths, and `xla-buckets` is compiled for a
few lengths, to which the others are padded.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import common  # noqa: E402
import tensorflow as tf  # noqa: E402
from workload import PADDING  # noqa: E402


def sequential(workload):
    layers = list(workload.layers())

    def forward(p, x):
        for name, layer in layers:
            if "conv" in layer:
                x = tf.nn.bias_add(tf.nn.conv2d(x, p[f"{name}/filter"], 1, "SAME"), p[f"{name}/bias"])
            elif "dense" in layer:
                x = tf.nn.bias_add(tf.matmul(x, p[f"{name}/weight"]), p[f"{name}/bias"])
            elif "max_pool" in layer:
                x = tf.nn.max_pool2d(x, layer["max_pool"], layer["max_pool"], "VALID")
            else:
                x = tf.reduce_mean(x, (1, 2))
            if layer.get("activation") == "relu":
                x = tf.nn.relu(x)
        return x

    return forward


def norm(p, name, x):
    mean, variance = tf.nn.moments(x, -1, keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, p[f"{name}/beta"], p[f"{name}/gamma"], 1e-5)


def gpt(workload):
    layers, heads, width = (workload.model[key] for key in ("layers", "heads", "width"))

    def dense(p, name, x):
        return tf.nn.bias_add(tf.matmul(x, p[f"{name}/weight"]), p[f"{name}/bias"])

    def forward(p, tokens):
        shape = tf.shape(tokens)
        batch, length = shape[0], shape[1]
        x = tf.gather(p["tokens/table"], tokens) + p["positions/table"][:length]
        # With two axes a dense layer is one product; with three it would be a batch of them.
        x = tf.reshape(x, [batch * length, width])
        hidden = tf.where(tf.linalg.band_part(tf.ones([length, length], tf.bool), -1, 0), 0.0, -1e9)
        for i in range(layers):
            block = f"block{i}"
            qkv = dense(p, f"{block}/attention/qkv", norm(p, f"{block}/ln1", x))
            qkv = tf.reshape(qkv, [batch, length, 3, heads, width // heads])
            q, k, v = tf.unstack(tf.transpose(qkv, [2, 0, 3, 1, 4]))
            scores = tf.matmul(q * (width // heads) ** -0.5, k, transpose_b=True) + hidden
            mixed = tf.transpose(tf.matmul(tf.nn.softmax(scores), v), [0, 2, 1, 3])
            x = x + dense(p, f"{block}/attention/out", tf.reshape(mixed, [batch * length, width]))
            up = dense(p, f"{block}/mlp/up", norm(p, f"{block}/ln2", x))
            x = x + dense(p, f"{block}/mlp/down", tf.nn.gelu(up))
        return tf.matmul(norm(p, "ln", x), p["head/weight"])

    return forward


def build(workload, variant, weights):
    forward = gpt(workload) if workload.model["kind"] == "gpt" else sequential(workload)
    p = {name: tf.Variable(values, name=name) for name, values in weights}
    slots = {name: [tf.Variable(tf.zeros_like(value)) for _ in range(2)] for name, value in p.items()}
    powers = [tf.Variable(0.9), tf.Variable(0.999)]

    def loss_of(x, y):
        prediction = forward(p, x)
        if workload.loss == "mse":
            return tf.reduce_mean(tf.math.squared_difference(prediction, y))
        y = tf.reshape(y, [-1])
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(y, 0), prediction)
        if variant != "xla-buckets":
            return tf.reduce_mean(losses)
        real = tf.cast(y != PADDING, tf.float32)
        return tf.reduce_sum(losses * real) / tf.reduce_sum(real)

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(x, y)
        gradients = tape.gradient(loss, p)
        # The kernel adds epsilon to the root before it is corrected; so scaled it is Adam as published.
        epsilon = 1e-8 * tf.sqrt(1.0 - powers[1])
        for name, gradient in gradients.items():
            tf.raw_ops.ResourceApplyAdam(
                var=p[name].handle,
                m=slots[name][0].handle,
                v=slots[name][1].handle,
                beta1_power=powers[0],
                beta2_power=powers[1],
                lr=workload.rate,
                beta1=0.9,
                beta2=0.999,
                epsilon=epsilon,
                grad=tf.convert_to_tensor(gradient),
            )
        powers[0].assign(powers[0] * 0.9)
        powers[1].assign(powers[1] * 0.999)
        return loss

    if variant == "signature":
        tokens = tf.TensorSpec([workload.batch, None], tf.int32)
        step = tf.function(step, input_signature=[tokens, tokens])
    elif variant != "eager":
        step = tf.function(step, jit_compile=variant.startswith("xla"))

    def train(x, y):
        return float(step(tf.constant(x), tf.constant(y)))

    return train


if __name__ == "__main__":
    tf.config.threading.set_intra_op_parallelism_threads(common.THREADS)
    tf.config.threading.set_inter_op_parallelism_threads(common.THREADS)
    common.measure("tensorflow", tf.__version__, build)
