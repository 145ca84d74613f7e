package podhash

import (
	"bytes"
	"unicode/utf8"
)

// canonicalizer rewrites JSON of encoding/json with sorted keys and without unset fields, as defined by prune. Unlike canonicalTree it
// creates no values: hashes cause most of the allocations when many pods start.
type canonicalizer struct {
	in  []byte
	pos int
	out []byte
	// members are the fields of the objects that are being read, those of the innermost one last.
	members []canonicalField
	sorted  []byte
}

// canonicalField is a field that is set; from and to are its place in out.
type canonicalField struct {
	key      []byte
	from, to int
}

// canonicalText returns the canonical form of JSON; ok is false if that takes a real decoder: for text that encoding/json writes
// in another way when it has read it.
func canonicalText(in []byte) (out []byte, ok bool) {
	if !utf8.Valid(in) || !plainEscapes(in) || bytes.Contains(in, []byte(`"managedFields":`)) { // those are raw JSON, in which a key may stand twice
		return nil, false
	}
	c := canonicalizer{in: in, out: make([]byte, 0, len(in))}
	if _, ok = c.value(); !ok || c.pos != len(in) {
		return nil, false
	}
	return c.out, true
}

// plainEscapes reports whether JSON escapes survive decoding and encoding unchanged.
func plainEscapes(in []byte) bool {
	for {
		i := bytes.IndexByte(in, '\\')
		if i < 0 {
			return true
		}
		in = in[i+1:]
		if len(in) == 0 {
			return false
		}
		switch in[0] {
		case '"', '\\', 'b', 'f', 'n', 'r', 't':
			in = in[1:]
		case 'u':
			if len(in) < 5 {
				return false
			}
			switch string(in[1:5]) {
			case "003c", "003e", "0026", "2028", "2029":
				in = in[5:]
			default:
				return false
			}
		default:
			return false
		}
	}
}

// value appends the next value and reports whether it is set.
func (c *canonicalizer) value() (isSet, ok bool) {
	if c.pos >= len(c.in) {
		return false, false
	}
	switch c.in[c.pos] {
	case '{':
		return c.object()
	case '[':
		return c.array()
	case '"':
		text, ok := c.text()
		c.out = append(c.out, text...)
		return len(text) > len(`""`), ok
	}
	from := c.pos
	for c.pos < len(c.in) && c.in[c.pos] != ',' && c.in[c.pos] != '}' && c.in[c.pos] != ']' {
		c.pos++
	}
	word := c.in[from:c.pos]
	c.out = append(c.out, word...)
	return string(word) != "null", len(word) > 0
}

// text returns the next string with its quotes.
func (c *canonicalizer) text() (text []byte, ok bool) {
	for i := c.pos + 1; i < len(c.in); i++ {
		switch c.in[i] {
		case '\\':
			i++
		case '"':
			text = c.in[c.pos : i+1]
			c.pos = i + 1
			return text, true
		}
	}
	return nil, false
}

// take goes behind a byte if it is the next one.
func (c *canonicalizer) take(b byte) bool {
	if c.pos < len(c.in) && c.in[c.pos] == b {
		c.pos++
		return true
	}
	return false
}

func (c *canonicalizer) array() (isSet, ok bool) {
	c.pos++
	c.out = append(c.out, '[')
	for first := true; !c.take(']'); first = false {
		if !first {
			if !c.take(',') {
				return false, false
			}
			c.out = append(c.out, ',')
		}
		if _, ok := c.value(); !ok {
			return false, false
		}
		isSet = true
	}
	c.out = append(c.out, ']')
	return isSet, true
}

func (c *canonicalizer) object() (isSet, ok bool) {
	c.pos++
	start, base := len(c.out), len(c.members)
	for first := true; !c.take('}'); first = false {
		if !first && !c.take(',') {
			return false, false
		}
		if !c.field(base) {
			return false, false
		}
	}
	c.sorted = append(c.sorted[:0], '{')
	for i, m := range c.members[base:] {
		if i > 0 {
			c.sorted = append(c.sorted, ',')
		}
		c.sorted = append(c.sorted, c.out[m.from:m.to]...)
	}
	isSet = len(c.members) > base
	c.members = c.members[:base]
	c.out = append(append(c.out[:start], c.sorted...), '}')
	return isSet, true
}

// field appends a field and, if it is set, puts it among the members from base on. Keys that are escaped, or stand twice, are for others.
func (c *canonicalizer) field(base int) bool {
	m := canonicalField{from: len(c.out)}
	if c.pos >= len(c.in) || c.in[c.pos] != '"' {
		return false
	}
	text, ok := c.text()
	if !ok || bytes.IndexByte(text, '\\') >= 0 || !c.take(':') {
		return false
	}
	c.out = append(append(c.out, text...), ':')
	isSet, ok := c.value()
	if !ok || !isSet {
		c.out = c.out[:m.from]
		return ok
	}
	m.key, m.to = text[1:len(text)-1], len(c.out)
	at := len(c.members)
	for at > base && bytes.Compare(c.members[at-1].key, m.key) > 0 {
		at--
	}
	if at > base && bytes.Equal(c.members[at-1].key, m.key) {
		return false
	}
	c.members = append(c.members, m)
	copy(c.members[at+1:], c.members[at:])
	c.members[at] = m
	return true
}
