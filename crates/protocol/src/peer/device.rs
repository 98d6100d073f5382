//! Payloads of collectives between devices.

use super::bytes::{PayloadCursor, push_short};
use super::{HANDLE_BYTES_MAX, PeerError};

const BUFFERS: u8 = b'O';
const TRIAL: u8 = b'T';
const EVENT: u8 = b'E';

/// Position of a tensor in memory that other processes can map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceBuffer<'a> {
    /// Name of the allocation; not empty.
    pub name: &'a [u8],
    /// Offset and length of the tensor in the allocation, in bytes.
    pub start: u64,
    pub length: u64,
}

/// A member's first payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceBuffers<'a> {
    /// Identifies the process: a worker that rejoins with the same index has another one.
    pub process: [u8; 16],
    /// True if it has read memory of all other members before.
    pub knows_all: bool,
    /// Event that is reached when the buffers are computed.
    pub event: &'a [u8],
    pub operand: Option<DeviceBuffer<'a>>,
    pub result: Option<DeviceBuffer<'a>>,
    /// Words that say whether its memory may be wrong, for members whose kernels synchronize on the
    /// devices.
    pub errors: Option<DeviceBuffer<'a>>,
    /// Offer to run this collective by such a kernel; `None` where it takes another path.
    pub kernel: Option<KernelOffer<'a>>,
}

/// A member's part in a collective by kernels that synchronize on the devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelOffer<'a> {
    /// Identifies the regions of all members with which it has launched such a kernel before; zeros
    /// for none.
    pub group: [u8; 16],
    /// Memory through which the kernels synchronize.
    pub region: DeviceBuffer<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DevicePayload<'a> {
    Buffers(DeviceBuffers<'a>),
    /// True if the memory of all other members could be mapped.
    Trial(bool),
    /// Event that is reached when the sender has reduced, or read.
    Event(&'a [u8]),
}

impl<'a> DevicePayload<'a> {
    /// # Errors
    /// A name that is too long, or empty.
    pub fn encode(&self) -> Result<Vec<u8>, PeerError> {
        let mut out = Vec::new();
        match self {
            Self::Buffers(buffers) => {
                out.push(BUFFERS);
                out.extend_from_slice(&buffers.process);
                out.push(buffers.knows_all.into());
                push_short(&mut out, "an event", buffers.event, HANDLE_BYTES_MAX)?;
                push_buffer(&mut out, buffers.operand)?;
                push_buffer(&mut out, buffers.result)?;
                push_buffer(&mut out, buffers.errors)?;
                push_buffer(&mut out, buffers.kernel.map(|kernel| kernel.region))?;
                out.extend(buffers.kernel.iter().flat_map(|kernel| kernel.group));
            }
            Self::Trial(is_mapped) => out.extend([TRIAL, (*is_mapped).into()]),
            Self::Event(event) => {
                out.push(EVENT);
                push_short(&mut out, "an event", event, HANDLE_BYTES_MAX)?;
            }
        }
        Ok(out)
    }

    /// # Errors
    /// Bytes that are no such payload.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, PeerError> {
        let mut cursor = PayloadCursor(bytes);
        let [kind] = cursor.array("a device's payload")?;
        let payload = match kind {
            BUFFERS => Self::Buffers(DeviceBuffers {
                process: cursor.array("a process")?,
                knows_all: cursor.bool("whether all are known")?,
                event: cursor.short("an event", HANDLE_BYTES_MAX)?,
                operand: buffer(&mut cursor)?,
                result: buffer(&mut cursor)?,
                errors: buffer(&mut cursor)?,
                kernel: kernel(&mut cursor)?,
            }),
            TRIAL => Self::Trial(cursor.bool("a trial")?),
            EVENT => Self::Event(cursor.short("an event", HANDLE_BYTES_MAX)?),
            other => return Err(PeerError::Value("the kind of a device's payload", other.into())),
        };
        cursor.finish()?;
        Ok(payload)
    }
}

/// Appends a buffer; an empty name stands for none, and nothing follows it.
fn push_buffer(out: &mut Vec<u8>, buffer: Option<DeviceBuffer<'_>>) -> Result<(), PeerError> {
    let Some(DeviceBuffer { name, start, length }) = buffer else {
        return push_short(out, "an allocation", &[], 0);
    };
    if name.is_empty() {
        return Err(PeerError::Value("the length of an allocation's name", 0));
    }
    push_short(out, "an allocation", name, HANDLE_BYTES_MAX)?;
    out.extend_from_slice(&start.to_le_bytes());
    out.extend_from_slice(&length.to_le_bytes());
    Ok(())
}

fn buffer<'a>(cursor: &mut PayloadCursor<'a>) -> Result<Option<DeviceBuffer<'a>>, PeerError> {
    let name = cursor.short("an allocation", HANDLE_BYTES_MAX)?;
    if name.is_empty() {
        return Ok(None);
    }
    let (start, length) = (cursor.u64("a buffer's start")?, cursor.u64("a buffer's length")?);
    Ok(Some(DeviceBuffer { name, start, length }))
}

fn kernel<'a>(cursor: &mut PayloadCursor<'a>) -> Result<Option<KernelOffer<'a>>, PeerError> {
    let Some(region) = buffer(cursor)? else { return Ok(None) };
    Ok(Some(KernelOffer { group: cursor.array("a group of regions")?, region }))
}
