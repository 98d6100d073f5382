//! Connections that are malicious or mistaken: one log line each, without effect on others.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a failed test is a panic"
)]

mod common;

use common::peer::{Peer, greet, hello};
use common::{Server, worker};
use gt_protocol::handshake::{Capabilities, Hello, RefusalCode, Role, Token};
use gt_protocol::integer::to_u64;
use gt_protocol::{Attr, Id, Instruction, Op, Operand};
use gt_transport::HEAD_WORDS;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

fn connect(server: &Server) -> TcpStream {
    TcpStream::connect(&server.address).unwrap()
}

/// Reads until the other side closes.
fn until_closed(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    // A reset counts as closed too.
    let _ = stream.read_to_end(&mut rest);
}

/// `SplitMix64` bytes.
fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed;
    (0..count)
        .map(|_| {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            mixed.to_le_bytes()[7]
        })
        .collect()
}

#[test]
fn each_stranger_is_one_line() {
    let mut server = Server::start("strangers", &[]);
    let _toy = worker::spawn(&server);
    let mut good = Peer::unix(&server, hello(Role::Client));
    good.upload(0, &[1.0]);

    let half_open = connect(&server);
    let mut random = connect(&server);
    // The dispatcher closes after the first bytes, so the rest may not be read.
    let _ = random.write_all(&noise(1, 1 << 20));
    until_closed(&mut random);

    let mut claims = Peer::tcp(&server, hello(Role::Client));
    if let common::peer::Way::Frames { stream, .. } = &mut claims.way {
        stream.write_all(&[0xff; 20]).unwrap();
        until_closed(stream);
    }
    let mut gibberish = Peer::tcp(&server, hello(Role::Client));
    if let common::peer::Way::Frames { stream, .. } = &mut gibberish.way {
        // A valid header, with a claimed length of 2^63 - 1.
        let mut bytes = vec![8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend([0xff; 8]);
        stream.write_all(&bytes).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
    }
    let later = Hello { version: 900, version_oldest: 800, ..Hello::new(Role::Client) };
    let refusal = greet(&mut connect(&server), later).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::Version);
    assert!(refusal.text.ends_with("upgrade the dispatcher"), "{}", refusal.text);
    drop(connect(&server));

    assert_eq!(good.read(1, 0, 1).unwrap(), [1.0]);
    let mut silent = half_open;
    until_closed(&mut silent);
    let (_, log) = server.stop();
    let warnings: Vec<&str> = log.lines().filter(|line| line.contains(" WARN ")).collect();
    for part in [
        "not a GT peer: the first bytes are not GT's",
        "a frame of 4294967295 bytes, the limit is 1048576",
        "the client speaks protocol versions 800 to 900",
        "no hello within 3 s",
    ] {
        assert_eq!(warnings.iter().filter(|line| line.contains(part)).count(), 1, "{part}: {log}");
    }
    assert_eq!(warnings.len(), 4, "{log}");
}

/// Number of strangers in a flood: four times as many as are heard at once.
const FLOOD: usize = 1000;

#[test]
fn a_flood_of_strangers_keeps_nobody_out() {
    let mut server = Server::start("flood", &[]);
    let _toy = worker::spawn(&server);
    let mut good = Peer::unix(&server, hello(Role::Client));
    good.upload(0, &[1.0]);

    let mut strangers: Vec<TcpStream> = Vec::with_capacity(FLOOD);
    for number in 0..FLOOD {
        let mut stream = connect(&server);
        // A third says nothing, a third begins a hello, a third sends garbage. Some are closed by
        // then.
        let _ = match number % 3 {
            0 => Ok(()),
            1 => stream.write_all(b"GT\x01\n\xff"),
            _ => stream.write_all(&noise(to_u64(number), 4096)),
        };
        strangers.push(stream);
        if number % 100 == 99 {
            // Whoever speaks is heard, on TCP as well: within the flood, not after it.
            let mut late = Peer::tcp(&server, hello(Role::Client));
            late.upload(0, &[2.0]);
            assert_eq!(late.read(1, 0, 1).unwrap(), [2.0]);
            assert_eq!(good.read(1, 0, 1).unwrap(), [1.0]);
        }
    }
    drop(strangers);
    let (_, log) = server.stop();
    let told = log.lines().filter(|line| line.contains("of the oldest were closed")).count();
    assert!((1..=3).contains(&told), "{log}");
    assert!(!log.contains("panic"), "{log}");
}

/// A chunk without bytes: they are in the slab.
fn chunk(offset: i64) -> Instruction<'static> {
    let mut chunk = Instruction::new(Op::Chunk);
    chunk.operands.push(Operand::Value(Id::slot(0)));
    chunk.attrs.push(Attr::Int(offset));
    chunk
}

/// Puts bytes into the slab, for the chunk of that offset.
fn write_beside(peer: &mut Peer, offset: u32, bytes: &[u8]) {
    let slab = &mut peer.slabs.as_mut().unwrap().writes;
    slab.slot().unwrap()[..bytes.len()].copy_from_slice(bytes);
    let mut head = [0; HEAD_WORDS];
    head[0] = offset;
    assert!(slab.publish(&head, bytes.len()));
}

#[test]
fn payloads_beside_the_words_are_what_the_words_say() {
    let mut server = Server::start("payloads", &[]);
    let _toy = worker::spawn(&server);
    let with_slab = Hello { capabilities: Capabilities::LOCAL, ..hello(Role::Client) };
    let mut good = Peer::unix(&server, with_slab.clone());
    good.upload(0, &[1.0, 2.0]);
    write_beside(&mut good, 4, &3.0_f32.to_le_bytes());
    good.emit(&chunk(4));
    assert_eq!(good.read(1, 0, 2).unwrap(), [1.0, 3.0]);

    let mut missing = Peer::unix(&server, with_slab.clone());
    missing.upload(0, &[1.0]);
    missing.emit(&chunk(0));
    let mut elsewhere = Peer::moved(&server, with_slab.clone());
    elsewhere.upload(0, &[1.0]);
    write_beside(&mut elsewhere, 4, &[0; 4]);
    elsewhere.emit(&chunk(0));
    let mut excess = Peer::unix(&server, with_slab);
    excess.upload(0, &[1.0]);
    write_beside(&mut excess, 0, &[0; 8]);
    excess.emit(&chunk(0));
    for peer in [&mut missing, &mut elsewhere, &mut excess] {
        while peer.next().is_some() {}
    }
    assert_eq!(good.read(2, 0, 2).unwrap(), [1.0, 3.0]);
    let (_, log) = server.stop();
    assert_eq!(
        log.matches("a payload did not come with the words that name it").count(),
        2,
        "{log}"
    );
    assert_eq!(
        log.matches("attribute \"offset\" is missing or of the wrong kind").count(),
        1,
        "{log}"
    );
}

#[test]
fn tokens_are_asked_for() {
    let folder = std::env::temp_dir().join(format!("gt-tokens-{}", std::process::id()));
    std::fs::write(&folder, "# users\nada  secret-of-ada\nbob secret-of-bob\n").unwrap();
    let mut server = Server::start("tokens", &["--token-file", folder.to_str().unwrap()]);
    let with = |token: &str| Hello { token: Token(token.into()), ..hello(Role::Client) };
    for (token, text) in [
        ("", "no token: set GT_TOKEN to the one that the dispatcher knows"),
        ("secret-of-adb", "wrong token: set GT_TOKEN to the one that the dispatcher knows"),
    ] {
        let refusal = greet(&mut connect(&server), with(token)).unwrap_err();
        assert_eq!((refusal.code, refusal.text.as_str()), (RefusalCode::Token, text));
    }
    drop(Peer::moved(&server, with("secret-of-bob")));
    let (_, log) = server.stop();
    std::fs::remove_file(folder).unwrap();
    assert!(log.contains("(\"bob\") is connected by rings"), "{log}");
    assert_eq!(log.matches("2 tokens stand there in clear").count(), 1, "{log}");
    assert_eq!(log.matches(" WARN ").count(), 2, "{log}");
    assert!(!log.contains("secret-of"), "{log}");
}

#[test]
fn other_machines_need_tokens() {
    let outcome = std::process::Command::new(env!("CARGO_BIN_EXE_gt-dispatcher"))
        .args(["--listen", "0.0.0.0:0"])
        .output()
        .unwrap();
    assert_eq!(outcome.status.code(), Some(1));
    let text = String::from_utf8(outcome.stderr).unwrap();
    assert!(text.contains("give --token-file FILE"), "{text}");
}
