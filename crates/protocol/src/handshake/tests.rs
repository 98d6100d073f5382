//! Round trips of the handshake and the frame header, and bytes from a malicious peer.

use super::*;
use proptest::prelude::*;

fn hello() -> impl Strategy<Value = Hello> {
    let resume = prop::option::of(any::<(u32, [u8; 16], u64)>());
    let role = prop::sample::select(vec![Role::Client, Role::Worker, Role::Probe]);
    let token = prop::collection::vec(any::<u8>(), 0..=TOKEN_BYTES_MAX);
    let rest = any::<(u32, Option<u32>, Option<u16>)>();
    let session = prop::option::of(("[a-z0-9]{1,64}", prop::option::of(0..u32::MAX)));
    (role, rest, resume, token, "\\PC{0,16}", session).prop_map(
        |(role, (capabilities, worker, data_port), resume, token, name, session)| Hello {
            session: session.map(|(name, lease_s)| NamedSession { name, lease_s }),
            capabilities: Capabilities(capabilities),
            worker,
            data_port,
            resume: resume.map(|(session, secret, acknowledged)| Resume {
                session,
                secret: Secret(secret),
                acknowledged,
            }),
            token: Token(token),
            name,
            ..Hello::new(role)
        },
    )
}

fn welcome() -> impl Strategy<Value = Welcome> {
    let address = prop::collection::vec(any::<u8>(), 0..=ADDRESS_BYTES_MAX);
    let local_socket = prop::option::of((address, any::<[u8; 16]>()));
    (any::<(u32, u32, u64, Option<u32>)>(), any::<[u8; 16]>(), local_socket).prop_map(
        |((capabilities, session, acknowledged, worker), secret, local_socket)| Welcome {
            version: VERSION,
            capabilities: Capabilities(capabilities),
            session,
            secret: Secret(secret),
            acknowledged,
            worker,
            local_socket: local_socket
                .map(|(address, secret)| LocalSocket { address, secret: Secret(secret) }),
        },
    )
}

fn refusal() -> impl Strategy<Value = Refusal> {
    (prop::sample::select(&RefusalCode::KNOWN[..]), "\\PC{0,60}").prop_map(|(code, text)| Refusal {
        version: VERSION,
        version_oldest: VERSION_OLDEST,
        code,
        text,
    })
}

/// Any message of the handshake.
pub(crate) fn message() -> impl Strategy<Value = Handshake> {
    prop_oneof![
        hello().prop_map(Handshake::Hello),
        welcome().prop_map(Handshake::Welcome),
        refusal().prop_map(Handshake::Refusal),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

    #[test]
    fn every_message_comes_back_however_it_arrives(message in message(), place in any::<prop::sample::Index>()) {
        let mut bytes = message.encode().unwrap();
        let length = bytes.len();
        prop_assert_eq!(Handshake::decode(&bytes[..place.index(length)]).unwrap(), None);
        bytes.push(0);
        prop_assert_eq!(Handshake::decode(&bytes).unwrap(), Some((message, length)));
    }

    #[test]
    fn changed_bytes_never_panic(
        message in message(),
        changes in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 1..6),
    ) {
        let mut bytes = message.encode().unwrap();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        let _ = Handshake::decode(&bytes);
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Handshake::decode(&bytes);
        let mut framed = MAGIC.to_vec();
        framed.extend(bytes);
        let _ = Handshake::decode(&framed);
    }

    #[test]
    fn a_frame_header_comes_back(words in 0..=FRAME_BYTES_MAX / 4, sequence in any::<u64>(), acknowledged in any::<u64>()) {
        let header = FrameHeader { length_bytes: words * 4, sequence, acknowledged };
        prop_assert_eq!(FrameHeader::decode(&header.encode().unwrap()).unwrap(), header);
    }
}

#[test]
fn a_stranger_is_known_by_its_first_byte() {
    assert_eq!(Handshake::decode(b"").unwrap(), None);
    assert_eq!(Handshake::decode(b"G").unwrap(), None);
    assert_eq!(Handshake::decode(b"GET / HTTP/1.1").unwrap_err(), HandshakeError::Magic);
    assert_eq!(Handshake::decode(b"\x16").unwrap_err(), HandshakeError::Magic);
    let long = b"GT\x01\n\xff\xff";
    assert_eq!(Handshake::decode(long).unwrap_err(), HandshakeError::Length(65_535));
}

#[test]
fn a_hello_byte_for_byte() {
    let hello = Hello {
        token: Token(b"key".to_vec()),
        name: "ada".to_owned(),
        worker: Some(7),
        ..Hello::new(Role::Worker)
    };
    let expected = b"GT\x01\n\x20\0\x01\0\x01\0\x01\0\x01\x02\0\0\0\0\x07\0\0\0\x03\0key\x03\0ada";
    assert_eq!(Handshake::Hello(hello).encode().unwrap(), expected);
    let hex: Vec<String> = expected.iter().map(|byte| format!("{byte:02x}")).collect();
    let page: Vec<&str> = include_str!("../../../../docs/wire.md").split_whitespace().collect();
    assert!(page.join(" ").contains(&hex.join(" ")));
}

#[test]
fn a_named_session_stands_behind_the_name_of_the_client() {
    let hello = |lease_s| Hello {
        session: Some(NamedSession { name: "exp1".to_owned(), lease_s }),
        ..Hello::new(Role::Client)
    };
    let bytes = |lease| Handshake::Hello(hello(lease)).encode().unwrap();
    let expected = b"GT\x01\n\x20\0\x01\0\x01\0\x01\0\0\x10\0\0\0\0\0\0\0\0\x58\x02\0\0\x04\0exp1";
    assert_eq!(bytes(Some(600)), expected);
    assert_eq!(bytes(None)[22..26], [0xff; 4]);
    let mut long = hello(None);
    long.session.as_mut().unwrap().name = "x".repeat(SESSION_NAME_BYTES_MAX + 1);
    let error = Handshake::Hello(long).encode().unwrap_err();
    assert_eq!(error, HandshakeError::Limit("session", SESSION_NAME_BYTES_MAX + 1));
    let mut bytes = bytes(None);
    bytes[26] = 0xff;
    assert_eq!(Handshake::decode(&bytes).unwrap_err(), HandshakeError::Limit("session", 0xff));
}

#[test]
fn versions_meet_or_name_each_other() {
    let check = |client: (u16, u16), dispatcher: (u16, u16), expected: Result<u16, &str>| {
        let (version_oldest, version) = client;
        let hello = Hello { version, version_oldest, ..Hello::new(Role::Client) };
        let chosen = negotiate_between(&hello, dispatcher.0, dispatcher.1);
        assert_eq!(chosen.map_err(|refusal| refusal.text), expected.map_err(str::to_owned));
    };
    check((1, 1), (1, 1), Ok(1));
    check((1, 3), (3, 5), Ok(3));
    check((5, 7), (3, 5), Ok(5));
    check((3, 4), (3, 5), Ok(4));
    check(
        (1, 2),
        (3, 5),
        Err(
            "the client speaks protocol versions 1 to 2, this dispatcher 3 to 5: upgrade the client",
        ),
    );
    check(
        (6, 8),
        (3, 5),
        Err(
            "the client speaks protocol versions 6 to 8, this dispatcher 3 to 5: upgrade the dispatcher",
        ),
    );
    assert_eq!(negotiate(&Hello::new(Role::Client)).unwrap(), VERSION);
}

#[test]
fn what_a_later_version_appends_is_skipped() {
    let hello = Hello { version: VERSION + 1, ..Hello::new(Role::Client) };
    let mut bytes = Handshake::Hello(hello.clone()).encode().unwrap();
    bytes[13] |= 0x80;
    bytes.extend([1, 2, 3]);
    let length = bytes.len();
    bytes[4] = u8::try_from(length).unwrap();
    let decoded = Handshake::decode(&bytes).unwrap();
    assert_eq!(decoded, Some((Handshake::Hello(hello), length)));
    bytes[8] = 1;
    assert_eq!(
        Handshake::decode(&bytes).unwrap_err(),
        HandshakeError::Value("presence bits", 0x80)
    );
    bytes[13] = 0;
    assert_eq!(Handshake::decode(&bytes).unwrap_err(), HandshakeError::Trailing(3));
}

#[test]
fn limits_hold_on_both_sides() {
    let mut hello = Hello::new(Role::Client);
    hello.token = Token(vec![0; TOKEN_BYTES_MAX + 1]);
    assert_eq!(
        Handshake::Hello(hello).encode().unwrap_err(),
        HandshakeError::Limit("token", TOKEN_BYTES_MAX + 1)
    );
    let header = |length_bytes| FrameHeader { length_bytes, sequence: 1, acknowledged: 0 };
    let over = FRAME_BYTES_MAX + 4;
    assert_eq!(header(over).encode().unwrap_err(), HandshakeError::FrameLength(over));
    assert_eq!(header(6).encode().unwrap_err(), HandshakeError::FrameWords(6));
    let mut claim = header(4).encode().unwrap();
    claim[3] = 0xff;
    assert_eq!(FrameHeader::decode(&claim).unwrap_err(), HandshakeError::FrameLength(0xff00_0004));
}

#[test]
fn frames_arrive_once_and_in_order() {
    let arrival = |sequence, length_bytes, received| {
        FrameHeader { length_bytes, sequence, acknowledged: 0 }.arrival(received)
    };
    assert_eq!(arrival(1, 4, 0), Arrival::Next);
    assert_eq!(arrival(5, 4, 4), Arrival::Next);
    assert_eq!(arrival(4, 4, 4), Arrival::Repeated);
    assert_eq!(arrival(6, 4, 4), Arrival::Gap);
    assert_eq!(arrival(0, 0, 0), Arrival::Repeated);
    assert_eq!(arrival(4, 0, 4), Arrival::Repeated);
    assert_eq!(arrival(5, 0, 4), Arrival::Gap);
    assert_eq!(arrival(u64::MAX, 4, 0), Arrival::Gap);
    assert_eq!(arrival(1, 4, u64::MAX), Arrival::Repeated);
}

#[test]
fn secrets_are_not_printed() {
    let hello = Hello { token: Token(b"hunter2".to_vec()), ..Hello::new(Role::Client) };
    assert!(format!("{hello:?}").contains("Token(7 bytes)"));
    assert_eq!(format!("{:?}", Secret([1; 16])), "Secret(..)");
    assert_ne!(Secret([1; 16]), Secret([2; 16]));
    assert_ne!(Token(vec![1]), Token(vec![1, 2]));
}
