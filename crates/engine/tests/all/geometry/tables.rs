//! The layout tables of docs/formats.md §18.2, word for word: they were checked against a running
//! kernel.

use wattle_engine::geometry::{BlockRole, Geometry, Level, layout_name};
use wattle_engine::units::{MemberIx, Sector, StripeNo};

use super::{component, params};

const CHUNK: u64 = 8;

/// n = 4. Columns are stripes; within them slots; a number is a data chunk.
const RAID5: &str = "\
| 0 left-asymmetric |  0  1  2  P |  3  4  P  5 |  6  P  7  8 |  P  9 10 11 |
| 1 right-asymmetric |  P  0  1  2 |  3  P  4  5 |  6  7  P  8 |  9 10 11  P |
| 2 left-symmetric |  0  1  2  P |  4  5  P  3 |  8  P  6  7 |  P  9 10 11 |
| 3 right-symmetric |  P  0  1  2 |  5  P  3  4 |  7  8  P  6 |  9 10 11  P |
| 4 parity-first |  P  0  1  2 |  P  3  4  5 |  P  6  7  8 |  P  9 10 11 |
| 5 parity-last |  0  1  2  P |  3  4  5  P |  6  7  8  P |  9 10 11  P |";

/// n = 5. number^exponent.
const RAID6: &str = "\
| 0 left-asymmetric | Q 0^0 1^1 2^2 P | 3^0 4^1 5^2 P Q | 6^1 7^2 P Q 8^0 | 9^2 P Q 10^0 11^1 | P Q 12^0 13^1 14^2 |
| 1 right-asymmetric | P Q 0^0 1^1 2^2 | 3^2 P Q 4^0 5^1 | 6^1 7^2 P Q 8^0 | 9^0 10^1 11^2 P Q | Q 12^0 13^1 14^2 P |
| 2 left-symmetric | Q 0^0 1^1 2^2 P | 3^0 4^1 5^2 P Q | 7^1 8^2 P Q 6^0 | 11^2 P Q 9^0 10^1 | P Q 12^0 13^1 14^2 |
| 3 right-symmetric | P Q 0^0 1^1 2^2 | 5^2 P Q 3^0 4^1 | 7^1 8^2 P Q 6^0 | 9^0 10^1 11^2 P Q | Q 12^0 13^1 14^2 P |
| 4 parity-first | P Q 0^0 1^1 2^2 | P Q 3^0 4^1 5^2 | P Q 6^0 7^1 8^2 | P Q 9^0 10^1 11^2 | P Q 12^0 13^1 14^2 |
| 5 parity-last | 0^0 1^1 2^2 P Q | 3^0 4^1 5^2 P Q | 6^0 7^1 8^2 P Q | 9^0 10^1 11^2 P Q | 12^0 13^1 14^2 P Q |
| 8 ddf-zero-restart | P Q 0^2 1^3 2^4 | 3^0 P Q 4^3 5^4 | 6^0 7^1 P Q 8^4 | 9^0 10^1 11^2 P Q | Q 12^1 13^2 14^3 P |
| 9 ddf-N-restart | 0^0 1^1 2^2 P Q | 3^0 4^1 P Q 5^4 | 6^0 P Q 7^3 8^4 | P Q 9^2 10^3 11^4 | Q 12^1 13^2 14^3 P |
| 10 ddf-N-continue | 0^0 1^1 2^2 Q P | 4^0 5^1 Q P 3^4 | 8^0 Q P 6^3 7^4 | Q P 9^2 10^3 11^4 | P 12^1 13^2 14^3 Q |
| 16 left-asymmetric-6 | 0^0 1^1 2^2 P Q | 3^0 4^1 P 5^2 Q | 6^0 P 7^1 8^2 Q | P 9^0 10^1 11^2 Q | 12^0 13^1 14^2 P Q |
| 17 right-asymmetric-6 | P 0^0 1^1 2^2 Q | 3^0 P 4^1 5^2 Q | 6^0 7^1 P 8^2 Q | 9^0 10^1 11^2 P Q | P 12^0 13^1 14^2 Q |
| 18 left-symmetric-6 | 0^0 1^1 2^2 P Q | 4^0 5^1 P 3^2 Q | 8^0 P 6^1 7^2 Q | P 9^0 10^1 11^2 Q | 12^0 13^1 14^2 P Q |
| 19 right-symmetric-6 | P 0^0 1^1 2^2 Q | 5^0 P 3^1 4^2 Q | 7^0 8^1 P 6^2 Q | 9^0 10^1 11^2 P Q | P 12^0 13^1 14^2 Q |
| 20 parity-first-6 | P 0^0 1^1 2^2 Q | P 3^0 4^1 5^2 Q | P 6^0 7^1 8^2 Q | P 9^0 10^1 11^2 Q | P 12^0 13^1 14^2 Q |";

/// Rows of device chunks; a number is an array chunk.
const RAID10: &str = "\
layout 0x102 n=3 device=6 chunks array=9 used=6 stride=6
  row  0:   0   0   1
  row  1:   1   2   2
  row  2:   3   3   4
  row  3:   4   5   5
  row  4:   6   6   7
  row  5:   7   8   8
layout 0x102 n=4 device=3 chunks array=6 used=3 stride=3
  row  0:   0   0   1   1
  row  1:   2   2   3   3
  row  2:   4   4   5   5
layout 0x201 n=3 device=6 chunks array=9 used=6 stride=3
  row  0:   0   1   2
  row  1:   3   4   5
  row  2:   6   7   8
  row  3:   2   0   1
  row  4:   5   3   4
  row  5:   8   6   7
layout 0x10201 n=3 device=6 chunks array=9 used=6 stride=1
  row  0:   0   1   2
  row  1:   2   0   1
  row  2:   3   4   5
  row  3:   5   3   4
  row  4:   6   7   8
  row  5:   8   6   7
layout 0x201 n=4 device=6 chunks array=12 used=6 stride=3
  row  0:   0   1   2   3
  row  1:   4   5   6   7
  row  2:   8   9  10  11
  row  3:   3   0   1   2
  row  4:   7   4   5   6
  row  5:  11   8   9  10
layout 0x40201 n=4 device=6 chunks array=12 used=6 stride=3
  row  0:   0   1   2   3
  row  1:   4   5   6   7
  row  2:   8   9  10  11
  row  3:   1   0   3   2
  row  4:   5   4   7   6
  row  5:   9   8  11  10
layout 0x10201 n=4 device=6 chunks array=12 used=6 stride=1
  row  0:   0   1   2   3
  row  1:   3   0   1   2
  row  2:   4   5   6   7
  row  3:   7   4   5   6
  row  4:   8   9  10  11
  row  5:  11   8   9  10
layout 0x50201 n=4 device=6 chunks array=12 used=6 stride=1
  row  0:   0   1   2   3
  row  1:   1   0   3   2
  row  2:   4   5   6   7
  row  3:   5   4   7   6
  row  4:   8   9  10  11
  row  5:   9   8  11  10
layout 0x40201 n=5 device=4 chunks array=10 used=4 stride=2
  row  0:   0   1   2   3   4
  row  1:   5   6   7   8   9
  row  2:   1   0   4   2   3
  row  3:   6   5   9   7   8
layout 0x103 n=4 device=6 chunks array=8 used=6 stride=6
  row  0:   0   0   0   1
  row  1:   1   1   2   2
  row  2:   2   3   3   3
  row  3:   4   4   4   5
  row  4:   5   5   6   6
  row  5:   6   7   7   7";

#[test]
fn raid5_places_every_block_as_the_kernel_does() {
    assert_eq!(check_parity_table(Level::Raid5, 4, RAID5), 6);
}

#[test]
fn raid6_places_every_block_and_takes_every_exponent_as_the_kernel_does() {
    assert_eq!(check_parity_table(Level::Raid6, 5, RAID6), 14);
}

/// Returns the number of layouts in the table.
fn check_parity_table(level: Level, members: u32, table: &str) -> usize {
    for line in table.lines() {
        let mut cells = line.trim_matches('|').split('|');
        let (word, name) =
            cells.next().and_then(|cell| cell.trim().split_once(' ')).expect("number and name");
        let word = word.parse().expect("a layout number");
        assert_eq!(layout_name(level, word).as_deref(), Some(name));
        let geometry =
            Geometry::new(&params(level, word, CHUNK, members, component(CHUNK * 20))).expect("valid");
        let width = u64::from(members) - geometry.redundancy() as u64;
        for (stripe, cell) in (0..).zip(cells) {
            let map = geometry.stripe(StripeNo(stripe));
            let blocks: Vec<&str> = cell.split_whitespace().collect();
            assert_eq!(blocks.len(), members as usize);
            for (slot, block) in (0..).map(MemberIx).zip(blocks) {
                let expected = match block {
                    "P" => BlockRole::P,
                    "Q" => BlockRole::Q,
                    _ => {
                        let (chunk, exponent) = block.split_once('^').unwrap_or((block, ""));
                        let chunk: u64 = chunk.parse().expect("a chunk number");
                        assert_eq!(chunk / width, stripe, "{level} {name} stripe {stripe}");
                        let block = (chunk % width) as usize;
                        if !exponent.is_empty() {
                            assert_eq!(
                                map.exponent(block).to_string(),
                                exponent,
                                "{level} {name} chunk {chunk}"
                            );
                        }
                        assert_eq!(map.data_member(block), slot, "{level} {name} chunk {chunk}");
                        BlockRole::Data(block)
                    }
                };
                assert_eq!(map.role(slot), expected, "{level} {name} stripe {stripe} slot {slot}");
            }
        }
    }
    table.lines().count()
}

#[test]
fn raid10_places_every_copy_as_the_kernel_does() {
    let tables: Vec<&str> = RAID10.split("layout ").skip(1).collect();
    assert_eq!(tables.len(), 10);
    for table in tables {
        let mut lines = table.lines();
        let head = lines.next().expect("a heading");
        let number = |name: &str| -> u64 {
            let from = head.find(name).expect("a field") + name.len();
            head[from..].split(' ').next().and_then(|digits| digits.parse().ok()).expect("a number")
        };
        let word = head.split(' ').next().expect("the layout word").trim_start_matches("0x");
        let word = u32::from_str_radix(word, 16).expect("hexadecimal");
        let params =
            params(Level::Raid10, word, CHUNK, number("n=") as u32, component(CHUNK * number("device=")));
        let geometry = Geometry::new(&params).expect("valid");
        assert_eq!(geometry.array_sectors(), Sector(CHUNK * number("array=")), "{head}");
        assert_eq!(geometry.member_sectors(MemberIx(0)), Sector(CHUNK * number("used=")), "{head}");
        let mut grid = vec![vec![None; geometry.raid_disks()]; number("used=") as usize];
        for chunk in 0..number("array=") {
            for copy in &geometry.copies(Sector(chunk * CHUNK)) {
                let cell = &mut grid[(copy.sector.0 / CHUNK) as usize][copy.member.index()];
                assert_eq!(cell.replace(chunk), None, "{head} chunk {chunk}");
            }
        }
        for (row, line) in lines.take_while(|line| line.starts_with("  row")).enumerate() {
            let (_, expected) = line.split_once(':').expect("a row");
            let expected: Vec<Option<u64>> =
                expected.split_whitespace().map(|chunk| chunk.parse().ok()).collect();
            assert_eq!(grid[row], expected, "{head} row {row}");
        }
    }
}
