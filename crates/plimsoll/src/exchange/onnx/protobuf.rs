//! Protocol buffers, as far as ONNX needs them to be written: numbers, texts and messages in messages.

/// A message under construction.
#[derive(Debug, Clone, Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    pub(super) fn new() -> Message {
        Message::default()
    }

    pub(super) fn number(mut self, field: u32, value: i64) -> Message {
        self.key(field, 0);
        push_varint(&mut self.0, value as u64);
        self
    }

    pub(super) fn float(mut self, field: u32, value: f32) -> Message {
        self.key(field, 5);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn bytes(mut self, field: u32, bytes: &[u8]) -> Message {
        self = self.begin_bytes(field, bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn text(self, field: u32, text: &str) -> Message {
        self.bytes(field, text.as_bytes())
    }

    pub(super) fn texts<T: AsRef<str>>(self, field: u32, texts: impl IntoIterator<Item = T>) -> Message {
        texts.into_iter().fold(self, |message, text| message.text(field, text.as_ref()))
    }

    pub(super) fn message(self, field: u32, message: &Message) -> Message {
        self.bytes(field, &message.0)
    }

    /// The key and length of so many bytes, which must follow.
    pub(super) fn begin_bytes(mut self, field: u32, length: u64) -> Message {
        self.key(field, 2);
        push_varint(&mut self.0, length);
        self
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn key(&mut self, field: u32, kind: u32) {
        push_varint(&mut self.0, u64::from(field << 3 | kind));
    }
}

fn push_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}
