//! Protocol buffers as they are written: numbers, texts and messages in messages, nothing read.

/// A message in the making.
#[derive(Default)]
pub(crate) struct Message {
    bytes: Vec<u8>,
}

impl Message {
    pub(crate) fn new() -> Message {
        Message::default()
    }

    /// The message as a field of one that is streamed.
    pub(crate) fn as_field(&self, field: u32) -> Vec<u8> {
        let mut around = Message::new();
        around.bytes(field, &self.bytes);
        around.bytes
    }

    /// A number, or a truth as 0 or 1. What is 0 is left out, as it is what a reader assumes.
    pub(crate) fn number(&mut self, field: u32, value: impl Into<u64>) -> &mut Message {
        let value = value.into();
        if value != 0 {
            self.varint(u64::from(field) << 3);
            self.varint(value);
        }
        self
    }

    /// Numbers side by side, zeros too.
    pub(crate) fn numbers(&mut self, field: u32, values: &[u64]) -> &mut Message {
        let mut packed = Message::new();
        values.iter().for_each(|&value| packed.varint(value));
        self.bytes(field, &packed.bytes)
    }

    /// A message in this one.
    pub(crate) fn message(&mut self, field: u32, inner: &Message) -> &mut Message {
        self.bytes(field, &inner.bytes)
    }

    /// A text, or anything else that has a length.
    pub(crate) fn bytes(&mut self, field: u32, bytes: &[u8]) -> &mut Message {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
        self
    }

    pub(crate) fn finished(self) -> Vec<u8> {
        self.bytes
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the encoding's own documentation.
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
