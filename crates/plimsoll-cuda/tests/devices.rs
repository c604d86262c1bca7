//! Names of devices, and what is said on machines with and without them.

use plimsoll_cuda::{CudaDevice, DeviceId, ErrorKind, devices, driver_version};

#[test]
fn a_name_is_cuda_and_a_number() {
    assert_eq!("cuda:0".parse(), Ok(DeviceId(0)));
    assert_eq!("cuda:12".parse(), Ok(DeviceId(12)));
    for text in
        ["", "cuda", "cuda:", "cuda:x", "cuda:-1", "cuda:+1", "cuda:1.0", "CUDA:0", "cuda:99999", "cpu"]
    {
        let error = text.parse::<DeviceId>().expect_err("not a name");
        assert_eq!(error.kind(), ErrorKind::NotADevice);
        assert!(error.to_string().contains("such as cuda:0"), "{error}");
    }
}

#[test]
fn names_are_written_as_they_are_read() {
    for index in [0, 7, u16::MAX] {
        assert_eq!(DeviceId(index).to_string().parse(), Ok(DeviceId(index)));
    }
}

/// A machine has a driver or it has none; each must be said.
#[test]
fn without_a_driver_every_call_says_so_and_goes_on() {
    let Err(missing) = driver_version() else { return };
    assert!(missing.to_string().contains("NVIDIA driver"), "{missing}");
    assert_eq!(devices(), Err(missing.clone()));
    assert_eq!(CudaDevice::open(DeviceId(0)).expect_err("no driver"), missing);
    assert_eq!(driver_version(), Err(missing));
}

#[test]
fn a_device_that_is_not_there_is_an_error_that_names_it() {
    let error = CudaDevice::open(DeviceId(u16::MAX)).expect_err("no machine has so many");
    match driver_version() {
        Ok(_) => assert!(error.to_string().contains("cuda:65535"), "{error}"),
        Err(missing) => assert_eq!(error, missing),
    }
}
