//! Functions of address ranges.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Answer, Args, CallFault, bad, failed};
use crate::eval::value::{Type, Value};

/// An address range: the address as a number, its size in bits, the length of the prefix.
#[derive(Clone, Copy)]
struct Prefix {
    address: u128,
    bits: u32,
    len: u32,
}

impl Prefix {
    fn mask(self) -> u128 {
        let free = self.bits - self.len;
        let all = if self.bits == 128 { u128::MAX } else { (1u128 << self.bits) - 1 };
        if free >= 128 { 0 } else { (all >> free) << free }
    }

    fn ip(self, address: u128) -> String {
        if self.bits == 32 { Ipv4Addr::from(address as u32).to_string() } else { Ipv6Addr::from(address).to_string() }
    }
}

fn parse(text: &str) -> Result<Prefix, CallFault> {
    let fault = || CallFault::Call(format!("invalid CIDR expression: invalid CIDR address: {text}"));
    let (address, len) = text.split_once('/').ok_or_else(fault)?;
    let address: IpAddr = address.parse().map_err(|_| fault())?;
    if len.is_empty() || len.len() > 3 || !len.bytes().all(|b| b.is_ascii_digit()) {
        return Err(fault());
    }
    let len: u32 = len.parse().map_err(|_| fault())?;
    let (address, bits) = match address {
        IpAddr::V4(ip) => (u128::from(u32::from(ip)), 32),
        IpAddr::V6(ip) => (u128::from(ip), 128),
    };
    if len > bits {
        return Err(fault());
    }
    let mut prefix = Prefix { address, bits, len };
    prefix.address &= prefix.mask();
    Ok(prefix)
}

pub(super) fn cidrhost(args: &Args<'_>) -> Answer {
    let prefix = parse(args.text(0))?;
    let number = args.int(1)?;
    let free = prefix.bits - prefix.len;
    let fits = |n: u128| free >= 64 || n < (1u128 << free);
    let magnitude = u128::from(number.unsigned_abs());
    let offset = if number < 0 {
        // Counted from the end: -1 is the last address.
        if !fits(magnitude - 1) {
            return failed(format!("prefix of {} does not accommodate a host numbered {number}", prefix.len));
        }
        (!prefix.mask() & full(prefix.bits)) - (magnitude - 1)
    } else {
        if !fits(magnitude) {
            return failed(format!("prefix of {} does not accommodate a host numbered {number}", prefix.len));
        }
        magnitude
    };
    Ok(Value::string(prefix.ip(prefix.address | offset)))
}

fn full(bits: u32) -> u128 {
    if bits == 128 { u128::MAX } else { (1u128 << bits) - 1 }
}

pub(super) fn cidrnetmask(args: &Args<'_>) -> Answer {
    let prefix = parse(args.text(0))?;
    Ok(Value::string(prefix.ip(prefix.mask())))
}

pub(super) fn cidrsubnet(args: &Args<'_>) -> Answer {
    let prefix = parse(args.text(0))?;
    let (new_bits, number) = (args.int(1)?, args.int(2)?);
    let Some(new_bits) = u32::try_from(new_bits).ok().filter(|b| *b <= 128) else {
        return bad(1, "must be a number of bits");
    };
    let len = prefix.len + new_bits;
    if len > prefix.bits {
        return failed(format!("insufficient address space to extend prefix of {} by {new_bits}", prefix.len));
    }
    let fits = u128::try_from(number).is_ok_and(|n| new_bits >= 64 || n < (1u128 << new_bits));
    if !fits {
        return failed(format!("prefix extension of {new_bits} does not accommodate a subnet numbered {number}"));
    }
    let shift = prefix.bits - len;
    let offset = if shift >= 128 { 0 } else { u128::from(number.unsigned_abs()) << shift };
    Ok(Value::string(format!("{}/{len}", prefix.ip(prefix.address | offset))))
}

pub(super) fn cidrsubnets(args: &Args<'_>) -> Answer {
    let prefix = parse(args.text(0))?;
    let mut out = Vec::new();
    let last = prefix.address | (!prefix.mask() & full(prefix.bits));
    let mut next = Some(prefix.address);
    let mut before: Option<String> = None;
    for i in 1..args.all().len() {
        let Some(new_bits) = u32::try_from(args.int(i)?).ok().filter(|b| (1..=128).contains(b)) else {
            return bad(i, "must extend prefix by at least one bit");
        };
        let len = prefix.len + new_bits;
        if len > prefix.bits {
            return bad(
                i,
                format!("not enough remaining address space to extend prefix of {} by {new_bits}", prefix.len),
            );
        }
        let shift = prefix.bits - len;
        let size_minus_one = if shift >= 128 { u128::MAX } else { (1u128 << shift) - 1 };
        // A subnet begins at a multiple of its size.
        let start = next.and_then(|n| n.checked_add(size_minus_one)).map(|n| n & !size_minus_one);
        let end = start.and_then(|s| s.checked_add(size_minus_one)).filter(|end| *end <= last);
        let (Some(start), Some(end)) = (start, end) else {
            let after = before.unwrap_or_else(|| args.text(0).to_owned());
            return bad(
                i,
                format!("not enough remaining address space for a subnet with a prefix of {len} bits after {after}"),
            );
        };
        let text = format!("{}/{len}", prefix.ip(start));
        before = Some(text.clone());
        out.push(Value::string(text));
        next = end.checked_add(1);
    }
    Ok(Value::list(Type::String, out))
}
