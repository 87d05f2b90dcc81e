//! Pages of servers on the loopback interface.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

/// Returns the body of the page with this path at a port, if there is one.
#[must_use]
pub fn http_page(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    head.contains("200 OK").then(|| body.to_owned())
}
