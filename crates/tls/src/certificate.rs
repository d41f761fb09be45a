//! When a certificate is valid: two fields of its DER, which is what is told apart here from one
//! that does not fit or is not trusted. Signatures and names are rustls' to judge.

/// The first and the last second in which a certificate is valid, since 1970; negative before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) from_secs: i64,
    pub(crate) until_secs: i64,
}

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The validity of a certificate, `None` if it is none.
pub(crate) fn validity(der: &[u8]) -> Option<Validity> {
    let (certificate, _) = value(der, SEQUENCE)?;
    let (mut fields, _) = value(certificate, SEQUENCE)?;
    if let Some((_, rest)) = value(fields, VERSION) {
        fields = rest;
    }
    for tag in [INTEGER, SEQUENCE, SEQUENCE] {
        // The serial number, the signature's kind, the issuer.
        fields = value(fields, tag)?.1;
    }
    let (validity, _) = value(fields, SEQUENCE)?;
    let (from_secs, rest) = time(validity)?;
    let (until_secs, _) = time(rest)?;
    Some(Validity { from_secs, until_secs })
}

/// The content of the value at the beginning, if it has this tag, and what comes behind it.
fn value(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&[found, first], rest) = bytes.split_first_chunk()?;
    if found != tag {
        return None;
    }
    let (len, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x83 => {
            let (len, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (len.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(len)
}

/// The time at the beginning, and what comes behind it.
fn time(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (text, rest, year_digits) = match value(bytes, UTC_TIME) {
        Some((text, rest)) => (text, rest, 2),
        None => value(bytes, GENERALIZED_TIME).map(|(text, rest)| (text, rest, 4))?,
    };
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    if text.len() != year_digits + 10 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = |at: usize, len: usize| text.get(at..at + len)?.parse::<i64>().ok();
    let year = match (year_digits, number(0, year_digits)?) {
        (2, year @ 0..50) => 2000 + year,
        (2, year) => 1900 + year,
        (_, year) => year,
    };
    let two = |index: usize| number(year_digits + 2 * index, 2);
    let (month, day, hour, minute, second) = (two(0)?, two(1)?, two(2)?, two(3)?, two(4)?);
    let is_date = (1..=12).contains(&month) && (1..=31).contains(&day);
    let is_time = hour < 24 && minute < 60 && second <= 60;
    let secs = ((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
    (is_date && is_time).then_some((secs, rest))
}

/// Days since 1970-01-01 in the Gregorian calendar; years begin in March, so that the leap day is
/// the last one.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let of_year = (153 * month + 2) / 5 + day - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_days() {
        assert_eq!(days(1970, 1, 1), 0);
        assert_eq!(days(2000, 2, 29), 11_016);
        assert_eq!(days(2000, 3, 1), 11_017);
        assert_eq!(days(2026, 11, 24), 20_781);
        assert_eq!(days(1969, 12, 31), -1);
    }

    #[test]
    fn times_of_both_kinds_are_read() {
        let utc = |text: &str| [&[UTC_TIME, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
        assert_eq!(time(&utc("700101000001Z")), Some((1, &[][..])));
        assert_eq!(time(&utc("491231235959Z")).unwrap().0, 2_524_607_999);
        let long = [&[GENERALIZED_TIME, 15], &b"20500101000000Z"[..]].concat();
        assert_eq!(time(&long).unwrap().0, 2_524_608_000);
        for bad in [
            "700101000001",
            "701301000000Z",
            "7001010000Z",
            "70010100000aZ",
            "700100000000Z",
            "+00101000000Z",
        ] {
            assert_eq!(time(&utc(bad)), None, "{bad}");
        }
    }

    #[test]
    fn anything_cut_short_is_no_certificate() {
        let pem = include_bytes!("../tests/certificates/server.pem");
        let der: rustls::pki_types::CertificateDer<'_> =
            rustls::pki_types::pem::PemObject::from_pem_slice(pem).unwrap();
        let whole = validity(&der).unwrap();
        assert!(whole.from_secs < whole.until_secs);
        for len in 0..der.len().min(200) {
            assert!(validity(&der[..len]).is_none_or(|cut| cut == whole));
        }
    }
}
