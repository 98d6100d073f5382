//! Bytes of values that an engine lends for a while.

/// Bytes of an operand and of a result.
#[derive(Debug)]
pub enum Buffers<'a> {
    Two(&'a [u8], &'a mut [u8]),
    /// The same memory is both.
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

/// Memory that a collective works on until it gives it back to the engine. Where another thread moves collectives on, the
/// bytes are shown there, and the value is made and dropped where the engine is.
pub trait BorrowedBuffers {
    fn show(&mut self, work: &mut dyn FnMut(Buffers<'_>));
}
