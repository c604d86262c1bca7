//! Serving the page of a run: a thread beside training that answers two questions, and nothing else.
//!
//! `GET /` is the page and `GET /data?since=N` what it shows, as JSON. Each connection is one request, answered on a thread
//! of its own within limits of size and time, so that nobody who connects can hold up training or another reader. Requests
//! that name another host are refused: a page of a hostile site whose name was pointed at this machine could otherwise
//! read along.

use crate::Result;
use plimsoll::logs::PageReader;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    /// The host as it was given.
    host: String,
    port: u16,
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Address, String> {
        let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
        let host = if host.is_empty() { "127.0.0.1" } else { host };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        match port.parse() {
            Ok(port) => Ok(Address { host: host.into(), port }),
            Err(_) => {
                Err("expected HOST:PORT, such as 127.0.0.1:8080, or 127.0.0.1:0 for any free port".into())
            }
        }
    }
}

/// Serves until it is dropped.
pub(crate) struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    page: PageReader,
    /// The name that was given for this host.
    host: String,
    port: u16,
    is_over: AtomicBool,
    connections: AtomicUsize,
    /// Whether the end of training has been told to somebody.
    end_was_read: AtomicBool,
    /// Whether somebody has looked.
    was_read: AtomicBool,
}

/// The most connections that are answered at once; more are closed.
const CONNECTIONS: usize = 16;
/// The longest request, and the longest time that it or its answer takes.
const REQUEST_BYTES: usize = 8 << 10;
const PATIENCE: Duration = Duration::from_secs(5);
/// How long whoever watches has to ask for the end of training. A page asks each second.
const FAREWELL: Duration = Duration::from_millis(1500);

impl Server {
    /// Listens, and answers from now on.
    pub(crate) fn start(address: &Address, page: PageReader) -> Result<Server> {
        let cannot = |error: io::Error| {
            format!(
                "cannot serve at {}:{}: {error}; port 0 stands for any free one",
                address.host, address.port
            )
        };
        let found: Vec<SocketAddr> =
            (address.host.as_str(), address.port).to_socket_addrs().map_err(cannot)?.collect();
        let listener = TcpListener::bind(&found[..]).map_err(cannot)?;
        let local = listener.local_addr().map_err(cannot)?;
        let shared = Arc::new(Shared {
            page,
            host: address.host.to_ascii_lowercase(),
            port: local.port(),
            is_over: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            end_was_read: AtomicBool::new(false),
            was_read: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        let thread = thread::Builder::new().name("page".into()).spawn(move || listen(&listener, &serving));
        Ok(Server { shared, address: local, thread: Some(thread.map_err(cannot)?) })
    }

    /// What to open in a browser.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let begun = Instant::now();
        while self.shared.was_read.load(SeqCst)
            && !self.shared.end_was_read.load(SeqCst)
            && begun.elapsed() < FAREWELL
        {
            thread::sleep(Duration::from_millis(20));
        }
        self.shared.is_over.store(true, SeqCst);
        // Whoever listens is woken by somebody who calls.
        let mut own = self.address;
        if own.ip().is_unspecified() {
            own.set_ip(if own.is_ipv4() { [127, 0, 0, 1].into() } else { [0, 0, 0, 0, 0, 0, 0, 1].into() });
        }
        if TcpStream::connect_timeout(&own, PATIENCE).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

fn listen(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.is_over.load(SeqCst) {
            return;
        }
        let Ok(stream) = stream else {
            // Out of file descriptors, most likely: they come back.
            thread::sleep(Duration::from_millis(50));
            continue;
        };
        if shared.connections.fetch_add(1, SeqCst) >= CONNECTIONS {
            shared.connections.fetch_sub(1, SeqCst);
            continue;
        }
        let answering = Arc::clone(shared);
        let spawned = thread::Builder::new().name("page-request".into()).spawn(move || {
            // A reader that goes away is none of training's business.
            let _ = answer(stream, &answering);
            answering.connections.fetch_sub(1, SeqCst);
        });
        if spawned.is_err() {
            shared.connections.fetch_sub(1, SeqCst);
        }
    }
}

fn answer(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let head = read_head(&mut stream)?;
    let (status, kind, body) = respond(&head, shared);
    let header = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\n\
         Cross-Origin-Resource-Policy: same-origin\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(header.as_bytes())?;
    stream.write_all(&body)?;
    stream.flush()
}

/// Reads a request up to the empty line. Bodies are not read: nothing that is answered has one.
fn read_head(stream: &mut TcpStream) -> io::Result<String> {
    let begun = Instant::now();
    let mut head = vec![];
    let mut piece = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = PATIENCE.saturating_sub(begun.elapsed());
        if left.is_zero() || head.len() > REQUEST_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => head.extend_from_slice(&piece[..read]),
        }
    }
    String::from_utf8(head).map_err(|_| io::ErrorKind::InvalidData.into())
}

fn respond(head: &str, shared: &Shared) -> (&'static str, &'static str, Vec<u8>) {
    let plain = |status, text: &str| (status, "text/plain", text.as_bytes().to_vec());
    let mut lines = head.split("\r\n");
    let mut request = lines.next().unwrap_or_default().split(' ');
    let (method, target) = (request.next().unwrap_or_default(), request.next().unwrap_or_default());
    let mut hosts =
        lines.filter_map(|line| line.split_once(':')).filter(|(name, _)| name.eq_ignore_ascii_case("host"));
    match (hosts.next(), hosts.next()) {
        (Some((_, host)), None) if is_ours(host.trim(), &shared.host, shared.port) => {}
        _ => return plain("403 Forbidden", "this page is not served under that name\n"),
    }
    if method != "GET" {
        return plain("405 Method Not Allowed", "only GET is answered\n");
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    match path {
        "/" => match shared.page.html() {
            Ok(page) => ("200 OK", "text/html", page),
            Err(_) => plain("500 Internal Server Error", "the page cannot be made\n"),
        },
        "/data" => {
            let since = query.split('&').find_map(|pair| pair.strip_prefix("since="));
            let Ok(since) = since.unwrap_or("0").parse() else {
                return plain("400 Bad Request", "expected since=N, a number of steps\n");
            };
            let ended = shared.page.has_ended();
            let data = shared.page.data(since).to_string();
            shared.was_read.store(true, SeqCst);
            shared.end_was_read.fetch_or(ended, SeqCst);
            ("200 OK", "application/json", data.into_bytes())
        }
        _ => plain("404 Not Found", "there is / and /data?since=N\n"),
    }
}

/// Whether the host that a request names is this one: an address, `localhost` or the name that was given, on our port.
/// No name of somebody else's can be any of these.
fn is_ours(named: &str, given: &str, port: u16) -> bool {
    let (host, of_port) = match named.rsplit_once(':') {
        Some((host, of_port)) if !of_port.ends_with(']') => (host, of_port.parse().ok()),
        _ => (named, Some(80)),
    };
    let host = host.to_ascii_lowercase();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&host);
    of_port == Some(port) && (bare.parse::<IpAddr>().is_ok() || bare == "localhost" || bare == given)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_localhost_and_the_given_name_are_this_host() {
        for (named, ours) in [
            ("127.0.0.1:81", true),
            ("localhost:81", true),
            ("LOCALHOST:81", true),
            ("[::1]:81", true),
            ("trainer.lan:81", true),
            ("127.0.0.1:82", false),
            ("127.0.0.1", false),
            ("evil.example:81", false),
            ("127.0.0.1.evil.example:81", false),
            ("localhost.evil.example:81", false),
            ("", false),
            (":81", false),
        ] {
            assert_eq!(is_ours(named, "trainer.lan", 81), ours, "{named}");
        }
        assert!(is_ours("127.0.0.1", "x", 80));
    }

    #[test]
    fn addresses_are_loopback_unless_they_say_otherwise() {
        let address = |host: &str, port| Ok(Address { host: host.into(), port });
        assert_eq!("8080".parse(), address("127.0.0.1", 8080));
        assert_eq!(":8080".parse(), address("127.0.0.1", 8080));
        assert_eq!("0.0.0.0:1".parse(), address("0.0.0.0", 1));
        assert_eq!("[::1]:0".parse(), address("::1", 0));
        assert!("127.0.0.1".parse::<Address>().is_err());
        assert!("127.0.0.1:99999".parse::<Address>().is_err());
    }
}
