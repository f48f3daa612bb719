//! Numbers as the language has them: binary floating point of 512 bits, printed with the fewest digits that read back
//! as the same number. Values that come from native arithmetic keep the precision of their type (53 or 64 bits), as
//! otherwise `pow(2, 0.5)` would print fifty meaningless digits.

use std::cmp::Ordering;

use num_bigint::BigUint;

/// Bits of precision of a number written in a file.
pub const LITERAL_PRECISION: u32 = 512;
/// Largest binary exponent either way; beyond it a literal is refused and a result becomes infinite or zero.
pub const MAX_EXPONENT: i64 = 4_096;
/// Longest text of one number, in bytes.
pub const MAX_NUMBER_LEN: usize = 4_096;

/// A number: finite, or infinite after an overflow or a division by zero.
#[derive(Clone, Debug)]
pub struct Number {
    negative: bool,
    repr: Repr,
    precision: u32,
}

#[derive(Clone, Debug)]
enum Repr {
    /// `mantissa * 2^exponent`; the mantissa is odd or zero.
    Finite {
        mantissa: BigUint,
        exponent: i64,
    },
    Infinite,
}

/// Why an operation has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotANumber;

fn zero() -> BigUint {
    BigUint::from(0u8)
}

impl Number {
    /// An integer, with the 64 bits of precision of its type.
    pub fn from_i64(value: i64) -> Self {
        Self::rounded(value < 0, BigUint::from(value.unsigned_abs()), 0, false, 64)
    }

    /// An integer with 64 bits of precision.
    pub fn from_u64(value: u64) -> Self {
        Self::rounded(false, BigUint::from(value), 0, false, 64)
    }

    /// An integer of any size.
    pub fn from_big(negative: bool, value: BigUint) -> Self {
        Self::rounded(negative, value, 0, false, LITERAL_PRECISION)
    }

    /// A native float with its own 53 bits of precision; `None` for NaN.
    pub fn from_f64(value: f64) -> Option<Self> {
        if value.is_nan() {
            return None;
        }
        let negative = value.is_sign_negative();
        if value.is_infinite() {
            return Some(Self::infinite(negative));
        }
        let bits = value.to_bits();
        let raw_exponent = ((bits >> 52) & 0x7ff) as i64;
        let fraction = bits & 0x000f_ffff_ffff_ffff;
        let (mantissa, exponent) =
            if raw_exponent == 0 { (fraction, -1074) } else { (fraction | (1 << 52), raw_exponent - 1075) };
        Some(Self::rounded(negative, BigUint::from(mantissa), exponent, false, 53))
    }

    fn infinite(negative: bool) -> Self {
        Self { negative, repr: Repr::Infinite, precision: LITERAL_PRECISION }
    }

    /// Rounds half to even to `precision` bits; `sticky` says that something non-zero lies below the mantissa.
    fn rounded(negative: bool, mut mantissa: BigUint, mut exponent: i64, sticky: bool, precision: u32) -> Self {
        let bits = mantissa.bits();
        if bits > u64::from(precision) {
            let drop = bits - u64::from(precision);
            let half_set = mantissa.bit(drop - 1);
            let below = sticky || mantissa.trailing_zeros().is_some_and(|z| z < drop - 1);
            mantissa >>= drop;
            exponent += drop as i64;
            if half_set && (below || mantissa.bit(0)) {
                mantissa += 1u8;
            }
        }
        match mantissa.trailing_zeros() {
            None => return Self { negative, repr: Repr::Finite { mantissa: zero(), exponent: 0 }, precision },
            Some(z) => {
                mantissa >>= z;
                exponent += z as i64;
            }
        }
        let magnitude = exponent.saturating_add(mantissa.bits() as i64);
        if magnitude > MAX_EXPONENT {
            return Self::infinite(negative);
        }
        if magnitude < -MAX_EXPONENT {
            return Self { negative, repr: Repr::Finite { mantissa: zero(), exponent: 0 }, precision };
        }
        Self { negative, repr: Repr::Finite { mantissa, exponent }, precision }
    }

    /// Reads `-12.5e3`; `None` if the text is no number or beyond the limits.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_NUMBER_LEN {
            return None;
        }
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (number, exponent) = match rest.find(['e', 'E']) {
            Some(at) => (rest.get(..at)?, parse_exponent(rest.get(at + 1..)?)?),
            None => (rest, 0),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
        if !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let mantissa = BigUint::parse_bytes(&digits, 10)?;
        let number = Self::from_decimal(negative, mantissa, exponent - fraction.len() as i64);
        number.is_finite().then_some(number)
    }

    /// `digits * 10^exponent`, rounded to the precision of literals.
    fn from_decimal(negative: bool, digits: BigUint, exponent: i64) -> Self {
        let limit = MAX_EXPONENT / 3 + MAX_NUMBER_LEN as i64;
        if exponent > limit && digits.bits() > 0 {
            return Self::infinite(negative);
        }
        if exponent < -2 * limit {
            return Self::rounded(negative, zero(), 0, false, LITERAL_PRECISION);
        }
        let power = BigUint::from(10u8).pow(exponent.unsigned_abs() as u32);
        if exponent >= 0 {
            Self::rounded(negative, digits * power, 0, false, LITERAL_PRECISION)
        } else {
            let shift = power.bits() + u64::from(LITERAL_PRECISION) + 2;
            let shifted = digits << shift;
            let quotient = &shifted / &power;
            let sticky = &quotient * &power != shifted;
            Self::rounded(negative, quotient, -(shift as i64), sticky, LITERAL_PRECISION)
        }
    }

    /// Whether the number is not infinite.
    pub fn is_finite(&self) -> bool {
        matches!(self.repr, Repr::Finite { .. })
    }

    /// Whether the number is zero, of either sign.
    pub fn is_zero(&self) -> bool {
        matches!(&self.repr, Repr::Finite { mantissa, .. } if mantissa.bits() == 0)
    }

    /// Whether the sign is minus (also of a negative zero).
    pub fn is_negative(&self) -> bool {
        self.negative
    }

    /// Whether the number has no fraction.
    pub fn is_integer(&self) -> bool {
        matches!(&self.repr, Repr::Finite { exponent, .. } if *exponent >= 0)
    }

    /// The integer, if it is one and fits.
    pub fn to_i64(&self) -> Option<i64> {
        let Repr::Finite { mantissa, exponent } = &self.repr else { return None };
        if *exponent < 0 || *exponent > 64 {
            return None;
        }
        let value = u64::try_from(mantissa << (*exponent as u64)).ok()?;
        if self.negative {
            if value == 1 << 63 { Some(i64::MIN) } else { i64::try_from(value).ok().map(|v| -v) }
        } else {
            i64::try_from(value).ok()
        }
    }

    /// The nearest native float.
    pub fn to_f64(&self) -> f64 {
        match &self.repr {
            Repr::Infinite if self.negative => f64::NEG_INFINITY,
            Repr::Infinite => f64::INFINITY,
            Repr::Finite { .. } => self.to_string().parse().unwrap_or(f64::NAN),
        }
    }

    /// The number with the other sign.
    pub fn negated(&self) -> Self {
        let mut out = self.clone();
        // Minus zero is written only by functions, as in the peer.
        out.negative = !self.negative && !self.is_zero();
        out
    }

    /// The number without its sign.
    pub fn abs(&self) -> Self {
        Self { negative: false, ..self.clone() }
    }

    /// Sum.
    pub fn add(&self, other: &Self) -> Result<Self, NotANumber> {
        let precision = self.precision.max(other.precision);
        match (&self.repr, &other.repr) {
            (Repr::Infinite, Repr::Infinite) if self.negative != other.negative => Err(NotANumber),
            (Repr::Infinite, _) => Ok(self.clone()),
            (_, Repr::Infinite) => Ok(other.clone()),
            (Repr::Finite { mantissa: a, exponent: ea }, Repr::Finite { mantissa: b, exponent: eb }) => {
                let low = (*ea).min(*eb);
                let a = a << ((ea - low) as u64);
                let b = b << ((eb - low) as u64);
                Ok(if self.negative == other.negative {
                    Self::rounded(self.negative, a + b, low, false, precision)
                } else {
                    match a.cmp(&b) {
                        Ordering::Equal => Self::rounded(false, zero(), 0, false, precision),
                        Ordering::Greater => Self::rounded(self.negative, a - b, low, false, precision),
                        Ordering::Less => Self::rounded(other.negative, b - a, low, false, precision),
                    }
                })
            }
        }
    }

    /// Difference.
    pub fn sub(&self, other: &Self) -> Result<Self, NotANumber> {
        let mut minus = other.clone();
        minus.negative = !minus.negative;
        self.add(&minus)
    }

    /// Product.
    pub fn mul(&self, other: &Self) -> Result<Self, NotANumber> {
        let negative = self.negative != other.negative;
        match (&self.repr, &other.repr) {
            (Repr::Finite { mantissa: a, exponent: ea }, Repr::Finite { mantissa: b, exponent: eb }) => {
                let negative = negative && a.bits() > 0 && b.bits() > 0;
                Ok(Self::rounded(negative, a * b, ea + eb, false, self.precision.max(other.precision)))
            }
            _ if self.is_zero() || other.is_zero() => Err(NotANumber),
            _ => Ok(Self::infinite(negative)),
        }
    }

    /// Quotient; a division of something by zero is infinite.
    pub fn div(&self, other: &Self) -> Result<Self, NotANumber> {
        let negative = self.negative != other.negative;
        match (&self.repr, &other.repr) {
            (Repr::Infinite, Repr::Infinite) => Err(NotANumber),
            (Repr::Infinite, _) => Ok(Self::infinite(negative)),
            (_, Repr::Infinite) => Ok(Self::rounded(false, zero(), 0, false, self.precision)),
            (Repr::Finite { mantissa: a, exponent: ea }, Repr::Finite { mantissa: b, exponent: eb }) => {
                if b.bits() == 0 {
                    return if a.bits() == 0 { Err(NotANumber) } else { Ok(Self::infinite(negative)) };
                }
                let precision = self.precision.max(other.precision);
                let shift = b.bits() + u64::from(precision) + 2;
                let shifted = a << shift;
                let quotient = &shifted / b;
                let sticky = &quotient * b != shifted;
                let negative = negative && a.bits() > 0;
                Ok(Self::rounded(negative, quotient, ea - eb - shift as i64, sticky, precision))
            }
        }
    }

    /// Remainder of the division rounded towards zero.
    pub fn rem(&self, other: &Self) -> Result<Self, NotANumber> {
        match (&self.repr, &other.repr) {
            (Repr::Finite { mantissa: a, exponent: ea }, Repr::Finite { mantissa: b, exponent: eb }) => {
                if b.bits() == 0 {
                    return Err(NotANumber);
                }
                let low = (*ea).min(*eb);
                let rest = (a << ((ea - low) as u64)) % (b << ((eb - low) as u64));
                let negative = self.negative && rest.bits() > 0;
                Ok(Self::rounded(negative, rest, low, false, self.precision.max(other.precision)))
            }
            _ => Err(NotANumber),
        }
    }

    /// The integer part (towards zero) and whether there was a fraction.
    fn split(&self) -> (Self, bool) {
        match &self.repr {
            Repr::Finite { mantissa, exponent } if *exponent < 0 => {
                let whole = mantissa >> (exponent.unsigned_abs());
                let negative = self.negative && whole.bits() > 0;
                (Self::rounded(negative, whole, 0, false, self.precision), true)
            }
            _ => (self.clone(), false),
        }
    }

    /// Towards minus infinity.
    pub fn floor(&self) -> Self {
        let (whole, fraction) = self.split();
        if fraction && self.negative { whole.sub(&Self::from_i64(1)).unwrap_or(whole) } else { whole }
    }

    /// Towards plus infinity.
    pub fn ceil(&self) -> Self {
        let (whole, fraction) = self.split();
        if fraction && !self.negative { whole.add(&Self::from_i64(1)).unwrap_or(whole) } else { whole }
    }

    /// Total order; minus infinity first.
    pub fn compare(&self, other: &Self) -> Ordering {
        let sign = |n: &Self| {
            if n.is_zero() {
                0i8
            } else if n.negative {
                -1
            } else {
                1
            }
        };
        let (sa, sb) = (sign(self), sign(other));
        if sa != sb || sa == 0 {
            return sa.cmp(&sb);
        }
        let magnitude = match (&self.repr, &other.repr) {
            (Repr::Infinite, Repr::Infinite) => Ordering::Equal,
            (Repr::Infinite, _) => Ordering::Greater,
            (_, Repr::Infinite) => Ordering::Less,
            (Repr::Finite { mantissa: a, exponent: ea }, Repr::Finite { mantissa: b, exponent: eb }) => {
                let low = (*ea).min(*eb);
                (a << ((ea - low) as u64)).cmp(&(b << ((eb - low) as u64)))
            }
        };
        if sa < 0 { magnitude.reverse() } else { magnitude }
    }

    /// How much work its digits are, against one for a small number.
    pub fn weight(&self) -> usize {
        match &self.repr {
            Repr::Finite { exponent, .. } => 1 + usize::try_from(exponent.unsigned_abs() / 128).unwrap_or(usize::MAX),
            Repr::Infinite => 1,
        }
    }

    /// The integer without its sign, if the number is one.
    pub fn to_big(&self) -> Option<BigUint> {
        match &self.repr {
            Repr::Finite { mantissa, exponent } if *exponent >= 0 => Some(mantissa << (*exponent as u64)),
            _ => None,
        }
    }

    /// Decimal digits with `places` after the point, rounded half to even.
    pub fn to_fixed(&self, places: u32) -> String {
        let Repr::Finite { mantissa, exponent } = &self.repr else { return self.to_string() };
        let mut decimal = Decimal::exact(mantissa, *exponent);
        decimal.round_to(decimal.point + i64::from(places));
        let mut text = decimal.plain(places as usize);
        if self.negative {
            text.insert(0, '-');
        }
        text
    }

    /// Scientific notation with `places` digits after the point, as `%e` prints it.
    pub fn to_scientific(&self, places: Option<u32>, upper: bool) -> String {
        let Repr::Finite { mantissa, exponent } = &self.repr else { return self.to_string() };
        let mut decimal = match places {
            Some(_) => Decimal::exact(mantissa, *exponent),
            None => self.shortest(mantissa, *exponent),
        };
        if let Some(places) = places {
            decimal.round_to(i64::from(places) + 1);
        }
        let wanted = places.map_or(decimal.digits.len().max(1), |p| p as usize + 1);
        let mut text = String::new();
        if self.negative {
            text.push('-');
        }
        for i in 0..wanted {
            if i == 1 {
                text.push('.');
            }
            text.push(char::from(decimal.digits.get(i).copied().unwrap_or(b'0')));
        }
        let power = if decimal.digits.is_empty() { 0 } else { decimal.point - 1 };
        let e = if upper { 'E' } else { 'e' };
        let sign = if power < 0 { '-' } else { '+' };
        text.push_str(&format!("{e}{sign}{:02}", power.abs()));
        text
    }

    /// Decimal exponent of the first digit as `%g` decides with it, and how many digits there are.
    pub fn shape(&self) -> (i64, usize) {
        match &self.repr {
            Repr::Finite { mantissa, exponent } => {
                let d = self.shortest(mantissa, *exponent);
                (d.point - 1, d.digits.len())
            }
            Repr::Infinite => (0, 0),
        }
    }

    /// Fewest digits that read back as this number at its precision.
    fn shortest(&self, mantissa: &BigUint, exponent: i64) -> Decimal {
        let mut decimal = Decimal::exact(mantissa, exponent);
        if decimal.digits.is_empty() {
            return decimal;
        }
        // One bit more than the precision, so that the last bit is half a unit.
        let shift = i64::from(self.precision) + 1 - mantissa.bits() as i64;
        if shift < 1 {
            return decimal;
        }
        let wide = mantissa << (shift as u64);
        let low = Decimal::exact(&(&wide - 1u8), exponent - shift);
        let high = Decimal::exact(&(&wide + 1u8), exponent - shift);
        let inclusive = !wide.bit(1);
        for i in 0..decimal.digits.len() {
            let m = decimal.digits.get(i).copied().unwrap_or(b'0');
            let l = low.aligned(i, decimal.point);
            let u = high.aligned(i, decimal.point);
            let down = l != m || (inclusive && i + 1 == low.digits.len());
            let up = m != u && (inclusive || m + 1 < u || i + 1 < high.digits.len());
            match (down, up) {
                (true, true) => decimal.round_to(i as i64 + 1),
                (true, false) => decimal.truncate_to(i + 1),
                (false, true) => decimal.round_up_to(i + 1),
                (false, false) => continue,
            }
            break;
        }
        decimal
    }
}

fn parse_exponent(text: &str) -> Option<i64> {
    let value: i64 = text.strip_prefix('+').unwrap_or(text).parse().ok()?;
    (-1_000_000..=1_000_000).contains(&value).then_some(value)
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.compare(other) == Ordering::Equal
    }
}

impl Eq for Number {}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.negative {
            f.write_str("-")?;
        }
        match &self.repr {
            Repr::Infinite => f.write_str("Inf"),
            Repr::Finite { mantissa, exponent } => {
                let decimal = self.shortest(mantissa, *exponent);
                let places = (decimal.digits.len() as i64 - decimal.point).max(0) as usize;
                f.write_str(&decimal.plain(places))
            }
        }
    }
}

/// `0.d1d2d3… * 10^point`, without trailing zeros.
struct Decimal {
    digits: Vec<u8>,
    point: i64,
}

impl Decimal {
    fn exact(mantissa: &BigUint, exponent: i64) -> Self {
        if mantissa.bits() == 0 {
            return Self { digits: Vec::new(), point: 0 };
        }
        let (integer, scale) = if exponent >= 0 {
            (mantissa << (exponent as u64), 0)
        } else {
            let k = exponent.unsigned_abs();
            (mantissa * BigUint::from(5u8).pow(k as u32), k as i64)
        };
        let digits = integer.to_string().into_bytes();
        let point = digits.len() as i64 - scale;
        let mut out = Self { digits, point };
        out.trim();
        out
    }

    fn trim(&mut self) {
        while self.digits.last() == Some(&b'0') {
            self.digits.pop();
        }
        if self.digits.is_empty() {
            self.point = 0;
        }
    }

    /// The digit at index `i` of a decimal whose point is `point`.
    fn aligned(&self, i: usize, point: i64) -> u8 {
        let at = i as i64 - (point - self.point);
        usize::try_from(at).ok().and_then(|at| self.digits.get(at).copied()).unwrap_or(b'0')
    }

    fn truncate_to(&mut self, n: usize) {
        self.digits.truncate(n);
        self.trim();
    }

    fn round_up_to(&mut self, n: usize) {
        self.digits.truncate(n);
        loop {
            match self.digits.pop() {
                None => {
                    self.digits.push(b'1');
                    self.point += 1;
                    return;
                }
                Some(b'9') => {}
                Some(d) => {
                    self.digits.push(d + 1);
                    return;
                }
            }
        }
    }

    /// Keeps `n` digits, rounding half to even.
    fn round_to(&mut self, n: i64) {
        if n < 0 {
            self.truncate_to(0);
            return;
        }
        let n = n as usize;
        let Some(&next) = self.digits.get(n) else { return };
        let exactly_half = next == b'5' && n + 1 == self.digits.len();
        let up = if exactly_half {
            n > 0 && self.digits.get(n - 1).is_some_and(|d| (d - b'0') % 2 == 1)
        } else {
            next >= b'5'
        };
        if up { self.round_up_to(n) } else { self.truncate_to(n) }
    }

    fn plain(&self, places: usize) -> String {
        let mut text = String::new();
        if self.point <= 0 || self.digits.is_empty() {
            text.push('0');
        } else {
            for i in 0..self.point as usize {
                text.push(char::from(self.digits.get(i).copied().unwrap_or(b'0')));
            }
        }
        if places > 0 {
            text.push('.');
            for i in 0..places {
                let at = self.point + i as i64;
                let digit = usize::try_from(at).ok().and_then(|at| self.digits.get(at).copied());
                text.push(char::from(digit.unwrap_or(b'0')));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn n(text: &str) -> Number {
        Number::parse(text).expect(text)
    }

    #[test]
    fn prints_the_fewest_digits() {
        assert_eq!(n("0.1").add(&n("0.2")).unwrap().to_string(), "0.3");
        assert_eq!(n("1e21").to_string(), "1000000000000000000000");
        assert_eq!(n("1e-7").to_string(), "0.0000001");
        assert_eq!(n("007").to_string(), "7");
        assert_eq!(n("1.50").to_string(), "1.5");
        let third = n("1").div(&n("3")).unwrap().to_string();
        assert_eq!(third.len(), 157);
        assert!(third.ends_with("3335"), "{third}");
        assert_eq!(Number::from_f64(2f64.powf(0.5)).unwrap().to_string(), "1.4142135623730951");
        assert_eq!(n("1e400").to_string(), format!("1{}", "0".repeat(400)));
    }

    #[test]
    fn rounds_and_formats() {
        assert_eq!(n("2.25").to_fixed(1), "2.2");
        assert_eq!(n("3.14159").to_fixed(2), "3.14");
        assert_eq!(n("9.99").to_fixed(1), "10.0");
        assert_eq!(n("0.04").to_fixed(1), "0.0");
        assert_eq!(n("1234.5").to_scientific(Some(6), false), "1.234500e+03");
        assert_eq!(n("-1.1").floor().to_string(), "-2");
        assert_eq!(n("-1.2").ceil().to_string(), "-1");
    }

    #[test]
    fn limits_hold() {
        assert!(Number::parse("1e999999").is_none());
        assert!(Number::parse(&"9".repeat(MAX_NUMBER_LEN + 1)).is_none());
        assert_eq!(n("9223372036854775807").to_i64(), Some(i64::MAX));
        assert_eq!(n("-9223372036854775808").to_i64(), Some(i64::MIN));
        assert_eq!(n("9223372036854775808").to_i64(), None);
        assert!(!n("1").div(&n("0")).unwrap().is_finite());
        assert!(n("0").div(&n("0")).is_err());
    }
}
