//! Payloads that the backends of collectives send each other, for backends in Python:
//! `gt_protocol::peer` as functions.

use gt_protocol::peer::{
    DeviceBuffer, DeviceBuffers, DevicePayload, GroupPayload, KernelOffer, PeerError,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Name of an allocation, offset in bytes, length in bytes.
type Buffer<'a> = (&'a [u8], u64, u64);
type PyBuffer<'py> = (Bound<'py, PyBytes>, u64, u64);
/// Buffers of an operand, a result, and words of errors.
type ThreeBuffers<T> = (Option<T>, Option<T>, Option<T>);
type DeviceParts<'py> = (
    Bound<'py, PyBytes>,
    bool,
    Bound<'py, PyBytes>,
    ThreeBuffers<PyBuffer<'py>>,
    Option<(Bound<'py, PyBytes>, PyBuffer<'py>)>,
);

fn invalid(error: PeerError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn encoded<'py>(py: Python<'py>, payload: &DevicePayload<'_>) -> PyResult<Bound<'py, PyBytes>> {
    Ok(PyBytes::new(py, &payload.encode().map_err(invalid)?))
}

/// Encodes a device's first payload.
///
/// Args:
///     process: 16 bytes that identify this process.
///     `knows_all`: True if this member has read memory of all other members before.
///     event: Name of the event that is reached when the buffers are computed.
///     buffers: The buffers of the operand, the result, and the words of errors, each as the allocation's name, the
///         offset and the length in bytes; None for an empty one.
///     kernel: The group of the last launch (zeros for none) and this member's region; None where no kernel is launched.
///
/// Raises:
///     `ValueError`: A name is too long.
#[pyfunction]
pub fn encode_device_buffers<'py>(
    py: Python<'py>,
    process: [u8; 16],
    knows_all: bool,
    event: &[u8],
    buffers: ThreeBuffers<Buffer<'_>>,
    kernel: Option<([u8; 16], Buffer<'_>)>,
) -> PyResult<Bound<'py, PyBytes>> {
    let buffer = |(name, start, length)| DeviceBuffer { name, start, length };
    let (operand, result, errors) =
        (buffers.0.map(buffer), buffers.1.map(buffer), buffers.2.map(buffer));
    let kernel = kernel.map(|(group, region)| KernelOffer { group, region: buffer(region) });
    let buffers = DeviceBuffers { process, knows_all, event, operand, result, errors, kernel };
    encoded(py, &DevicePayload::Buffers(buffers))
}

/// Decodes the arguments of `encode_device_buffers`.
///
/// Args:
///     payload: The payload of another member.
///
/// Raises:
///     `ValueError`: The payload has no buffers.
#[pyfunction]
pub fn decode_device_buffers<'py>(py: Python<'py>, payload: &[u8]) -> PyResult<DeviceParts<'py>> {
    let DevicePayload::Buffers(buffers) = DevicePayload::decode(payload).map_err(invalid)? else {
        return Err(PyValueError::new_err(format!("{} bytes name no buffers", payload.len())));
    };
    let bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
    let buffer = |one: DeviceBuffer<'_>| (bytes(one.name), one.start, one.length);
    let DeviceBuffers { process, knows_all, event, operand, result, errors, kernel } = buffers;
    let buffers = (operand.map(buffer), result.map(buffer), errors.map(buffer));
    let kernel = kernel.map(|kernel| (bytes(&kernel.group), buffer(kernel.region)));
    Ok((bytes(&process), knows_all, bytes(event), buffers, kernel))
}

/// Encodes a device's payload that says if the memory of all other members could be mapped.
#[pyfunction]
pub fn encode_device_trial(py: Python<'_>, is_mapped: bool) -> PyResult<Bound<'_, PyBytes>> {
    encoded(py, &DevicePayload::Trial(is_mapped))
}

/// Returns true if a payload says that the memory of all other members could be mapped.
///
/// Args:
///     payload: The payload of another member.
///
/// Raises:
///     `ValueError`: The payload is not of a device.
#[pyfunction]
pub fn decode_device_trial(payload: &[u8]) -> PyResult<bool> {
    let payload = DevicePayload::decode(payload).map_err(invalid)?;
    Ok(payload == DevicePayload::Trial(true))
}

/// Encodes a device's payload that names an event.
///
/// Args:
///     event: Name of the event that is reached when this member has reduced, or read.
///
/// Raises:
///     `ValueError`: The name is too long.
#[pyfunction]
pub fn encode_device_event<'py>(py: Python<'py>, event: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    encoded(py, &DevicePayload::Event(event))
}

/// The event that a payload names; None for a payload without one.
///
/// Args:
///     payload: The payload of another member.
///
/// Raises:
///     `ValueError`: The payload is not of a device.
#[pyfunction]
pub fn decode_device_event<'py>(
    py: Python<'py>,
    payload: &[u8],
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    match DevicePayload::decode(payload).map_err(invalid)? {
        DevicePayload::Event(event) => Ok(Some(PyBytes::new(py, event))),
        DevicePayload::Buffers(_) | DevicePayload::Trial(_) => Ok(None),
    }
}

/// Encodes a member's payload for a process group.
///
/// Args:
///     digest: 16 bytes that identify the rendezvous, once all of its members are known; zeros before.
///     nonce: 8 bytes that identify this member's rendezvous.
///     entries: Entries of the store through which the library connects.
///
/// Raises:
///     `ValueError`: The entries are too many or too long.
#[pyfunction]
pub fn encode_group_payload(
    py: Python<'_>,
    digest: [u8; 16],
    nonce: [u8; 8],
    entries: Vec<(String, Vec<u8>)>,
) -> PyResult<Bound<'_, PyBytes>> {
    let entries = entries.iter().map(|(key, value)| (key.as_str(), value.as_slice())).collect();
    let payload = GroupPayload { digest, nonce, entries };
    Ok(PyBytes::new(py, &payload.encode().map_err(invalid)?))
}

type GroupParts<'py> =
    (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Vec<(String, Bound<'py, PyBytes>)>);

/// Decodes the arguments of `encode_group_payload`.
///
/// Args:
///     payload: The payload of another member.
///
/// Raises:
///     `ValueError`: The payload is not of a process group.
#[pyfunction]
pub fn decode_group_payload<'py>(py: Python<'py>, payload: &[u8]) -> PyResult<GroupParts<'py>> {
    let GroupPayload { digest, nonce, entries } = GroupPayload::decode(payload).map_err(invalid)?;
    let bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
    let entries = entries.into_iter().map(|(key, value)| (key.to_owned(), bytes(value))).collect();
    Ok((bytes(&digest), bytes(&nonce), entries))
}
