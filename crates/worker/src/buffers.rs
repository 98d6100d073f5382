//! Bytes of values that an engine lends for a time.

/// Bytes of an operand and of a result.
#[derive(Debug)]
pub enum Buffers<'a> {
    Two(&'a [u8], &'a mut [u8]),
    /// Operand and result in the same memory.
    One(&'a mut [u8]),
}

impl Buffers<'_> {
    pub const fn operand(&self) -> &[u8] {
        match self {
            Self::Two(operand, _) => operand,
            Self::One(both) => both,
        }
    }

    pub const fn result(&self) -> &[u8] {
        match self {
            Self::Two(_, result) => result,
            Self::One(both) => both,
        }
    }

    pub const fn result_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Two(_, result) => result,
            Self::One(both) => both,
        }
    }
}

/// Memory that a collective works on until it returns it to the engine. The bytes may be used on
/// another thread, the one that advances collectives; the value is made and dropped on the engine's
/// thread.
pub trait BorrowedBuffers {
    fn show(&mut self, work: &mut dyn FnMut(Buffers<'_>));
}
