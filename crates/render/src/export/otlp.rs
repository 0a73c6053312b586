//! The common parts of metrics and profiles of OTLP: attributes, resources, instrumentation scopes.
//!
//! Fields are numbered as in github.com/open-telemetry/opentelemetry-proto, version 1.11,
//! `common/v1/common.proto` and `resource/v1/resource.proto`.

use crate::export::protobuf::Message;

/// A value of an attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// Text.
    Text(String),
    /// A number.
    Number(u64),
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Number(number)
    }
}

/// The source of metrics or profiles, with attributes named by the semantic conventions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Resource {
    /// Names and values.
    pub attributes: Vec<(&'static str, Value)>,
}

impl Resource {
    /// Returns the message of the resource.
    pub fn message(&self) -> Message {
        let mut resource = Message::new();
        for (key, value) in &self.attributes {
            resource.message(1, &attribute(key, value));
        }
        resource
    }
}

/// Returns a `KeyValue`.
pub fn attribute(key: &str, value: &Value) -> Message {
    let mut attribute = Message::new();
    attribute.bytes(1, key.as_bytes()).message(2, &any(value));
    attribute
}

/// Returns an `AnyValue`.
pub(crate) fn any(value: &Value) -> Message {
    let mut any = Message::new();
    match value {
        Value::Text(text) => any.bytes(1, text.as_bytes()),
        Value::Number(number) => any.chosen_number(3, *number),
    };
    any
}

/// Returns the `InstrumentationScope`, which names Heaptide and its version.
pub fn scope(version: &str) -> Message {
    let mut scope = Message::new();
    scope.bytes(1, b"heaptide").bytes(2, version.as_bytes());
    scope
}
