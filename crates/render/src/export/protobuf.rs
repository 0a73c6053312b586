//! Encoder for protocol buffers: numbers, texts and nested messages. It does not decode.

use crate::shared::leb128;

/// A message under construction.
#[derive(Clone, Default)]
pub struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// Returns a message without fields.
    pub fn new() -> Message {
        Message::default()
    }

    /// Returns the message encoded as a field of an outer message that is streamed.
    pub fn as_field(&self, field: u32) -> Vec<u8> {
        let mut around = Message::new();
        around.bytes(field, &self.bytes);
        around.bytes
    }

    /// Adds a number or boolean. Omits 0, which is the default of readers.
    pub fn number(&mut self, field: u32, value: impl Into<u64>) -> &mut Message {
        let value = value.into();
        if value != 0 {
            self.varint(u64::from(field) << 3);
            self.varint(value);
        }
        self
    }

    /// Adds a number even if it is 0, for a field of a `oneof`.
    pub fn chosen_number(&mut self, field: u32, value: u64) -> &mut Message {
        self.varint(u64::from(field) << 3);
        self.varint(value);
        self
    }

    /// Adds packed numbers, including zeros.
    pub fn numbers(&mut self, field: u32, values: &[u64]) -> &mut Message {
        let mut packed = Message::new();
        values.iter().for_each(|&value| packed.varint(value));
        self.bytes(field, &packed.bytes)
    }

    /// Adds a nested message.
    pub fn message(&mut self, field: u32, inner: &Message) -> &mut Message {
        self.bytes(field, &inner.bytes)
    }

    /// Adds a `fixed64` or `sfixed64`, even if it is 0.
    pub fn fixed(&mut self, field: u32, value: u64) -> &mut Message {
        self.varint(u64::from(field) << 3 | 1);
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Adds a `double`, even if it is 0.
    pub fn double(&mut self, field: u32, value: f64) -> &mut Message {
        self.fixed(field, value.to_bits())
    }

    /// Adds a text or another field with a length.
    pub fn bytes(&mut self, field: u32, bytes: &[u8]) -> &mut Message {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Returns the encoded message.
    pub fn finished(self) -> Vec<u8> {
        self.bytes
    }

    fn varint(&mut self, value: u64) {
        leb128::push(&mut self.bytes, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_eight_bytes_are_there_if_they_are_0() {
        let mut message = Message::new();
        message.fixed(3, 0).double(4, 1.0);
        let expected = b"\x19\0\0\0\0\0\0\0\0\x21\0\0\0\0\0\0\xf0\x3f";
        assert_eq!(message.finished(), expected);
    }

    /// Examples from the documentation of the encoding.
    #[test]
    fn as_the_documentation_has_it() {
        let mut message = Message::new();
        message.number(1, 150u64);
        assert_eq!(message.bytes, [0x08, 0x96, 0x01]);
        assert_eq!(message.as_field(3), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        let mut message = Message::new();
        message.bytes(2, b"testing").number(7, 0u64);
        assert_eq!(message.bytes, b"\x12\x07testing");
        let mut message = Message::new();
        message.numbers(6, &[3, 270, 86_942]);
        assert_eq!(message.finished(), [0x32, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05]);
    }
}
