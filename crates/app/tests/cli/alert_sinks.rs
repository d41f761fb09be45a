//! Receivers of alerts: a web server and a mail server that do as they are told, and note when what
//! came.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// What a receiver does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    Takes,
    /// It takes what comes, but says so only then.
    TakesLate(Duration),
    Answers500,
    /// It closes every connection at once.
    Closes,
}

/// What came.
#[derive(Debug, Clone)]
pub struct Received {
    pub at: Instant,
    /// The request line and headers, or the lines of the envelope.
    pub head: String,
    pub body: String,
}

#[derive(Debug)]
struct Shared {
    behaviour: Behaviour,
    /// What it took, and said so.
    taken: Vec<Received>,
    attempts: usize,
}

/// A receiver at a port of its own.
#[derive(Debug, Clone)]
pub struct Sink {
    shared: Arc<Mutex<Shared>>,
    pub port: u16,
}

impl Sink {
    /// A web server.
    pub fn web(behaviour: Behaviour) -> Self {
        Self::start(behaviour, serve_web)
    }

    /// A mail server.
    pub fn mail() -> Self {
        Self::start(Behaviour::Takes, serve_mail)
    }

    fn start(behaviour: Behaviour, serve: fn(TcpStream, &Mutex<Shared>) -> Option<()>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Mutex::new(Shared { behaviour, taken: Vec::new(), attempts: 0 }));
        let of_threads = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = of_threads.clone();
                thread::spawn(move || serve(stream, &shared));
            }
        });
        Self { shared, port }
    }

    pub fn behave(&self, behaviour: Behaviour) {
        self.shared.lock().unwrap().behaviour = behaviour;
    }

    pub fn taken(&self) -> Vec<Received> {
        self.shared.lock().unwrap().taken.clone()
    }

    pub fn attempts(&self) -> usize {
        self.shared.lock().unwrap().attempts
    }

    /// Waits until something came that has this in it.
    #[track_caller]
    pub fn wait_for(&self, text: &str) -> Received {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let has = |received: &Received| received.head.contains(text) || received.body.contains(text);
            if let Some(received) = self.taken().into_iter().find(has) {
                return received;
            }
            assert!(Instant::now() < until, "nothing with {text:?} came: {:#?}", self.taken());
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn serve_web(stream: TcpStream, shared: &Mutex<Shared>) -> Option<()> {
    stream.set_read_timeout(Some(Duration::from_secs(100))).ok()?;
    let behaviour = {
        let mut shared = shared.lock().unwrap();
        shared.attempts += 1;
        shared.behaviour
    };
    if behaviour == Behaviour::Closes {
        return None;
    }
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let (mut head, mut len) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            len = value.trim().parse().ok()?;
        }
        if line.trim().is_empty() {
            break;
        }
        head.push_str(&line);
    }
    let mut body = vec![0; len];
    reader.read_exact(&mut body).ok()?;
    let at = Instant::now();
    if let Behaviour::TakesLate(time) = behaviour {
        thread::sleep(time);
    }
    let status = match behaviour {
        Behaviour::Answers500 => "500 Internal Server Error",
        _ => "200 OK",
    };
    let mut stream = stream;
    if status == "200 OK" {
        let body = String::from_utf8(body).ok()?;
        shared.lock().unwrap().taken.push(Received { at, head, body });
    }
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").ok()
}

fn serve_mail(stream: TcpStream, shared: &Mutex<Shared>) -> Option<()> {
    shared.lock().unwrap().attempts += 1;
    let mut writer = stream.try_clone().ok()?;
    let mut reader = BufReader::new(stream);
    writer.write_all(b"220 sink ESMTP\r\n").ok()?;
    let (mut head, mut body) = (String::new(), String::new());
    let mut is_data = false;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let word = line.trim_end().to_ascii_uppercase();
        match () {
            () if is_data && line.trim_end() == "." => {
                is_data = false;
                let received =
                    Received { at: Instant::now(), head: head.clone(), body: std::mem::take(&mut body) };
                shared.lock().unwrap().taken.push(received);
                writer.write_all(b"250 taken\r\n").ok()?;
            }
            () if is_data => body.push_str(&line),
            () if word == "DATA" => {
                is_data = true;
                writer.write_all(b"354 go on\r\n").ok()?;
            }
            () if word == "QUIT" => {
                writer.write_all(b"221 bye\r\n").ok()?;
                return Some(());
            }
            () => {
                head.push_str(&line);
                writer.write_all(b"250 ok\r\n").ok()?;
            }
        }
    }
}
