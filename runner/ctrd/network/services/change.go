package services

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// errUnknown means that the content of the kernel's tables is unknown.
var errUnknown = errors.New("unknown content")

// named returns the chains by name.
func (l *layout) named() map[string]*nftables.Chain {
	out := make(map[string]*nftables.Chain, len(l.chains))
	for _, c := range l.chains {
		out[c.Name] = c
	}
	return out
}

// setsByName returns all sets by name, including those of clients.
func (l *layout) setsByName() map[string]*nftables.Set {
	out := maps.Clone(l.remember)
	for _, s := range l.sets {
		out[s.Name] = s
	}
	return out
}

// sameRules compares rules by their comments.
func sameRules(a, b []*nftables.Rule) bool {
	return slices.EqualFunc(a, b, func(x, y *nftables.Rule) bool { return bytes.Equal(x.UserData, y.UserData) })
}

// change updates the differences between two tables.
func (l *layout) change(have *layout) error {
	if have == nil || have.want.empty() {
		return errUnknown
	}
	c, err := connect()
	if err != nil {
		return err
	}
	known, still := have.setsByName(), l.setsByName()
	for name, s := range still {
		if known[name] == nil {
			if err := c.AddSet(s, nil); err != nil {
				return err
			}
		}
	}
	chains, after := have.named(), l.named()
	for _, ch := range l.chains { // all of them first: rules jump between chains
		if chains[ch.Name] == nil {
			c.AddChain(ch)
		}
	}
	for _, ch := range l.chains {
		if sameRules(have.rules[ch.Name], l.rules[ch.Name]) {
			continue
		}
		if chains[ch.Name] != nil {
			c.FlushChain(ch)
		}
		for _, r := range l.rules[ch.Name] {
			c.AddRule(r)
		}
	}
	for _, s := range l.sets {
		var before map[string]string
		if known[s.Name] != nil {
			before = have.contents(s)
		}
		gone, added := differences(before, l.contents(s))
		if err := errors.Join(each(s, gone, c.SetDeleteElements), each(s, added, c.SetAddElements)); err != nil {
			return err
		}
	}
	l.drop(c, have, after)
	return c.Flush()
}

// drop deletes unused chains and sets.
func (l *layout) drop(c *nftables.Conn, have *layout, after map[string]*nftables.Chain) {
	var gone []*nftables.Chain
	for _, ch := range have.chains {
		if after[ch.Name] == nil {
			gone = append(gone, ch)
			c.FlushChain(ch)
		}
	}
	for _, ch := range gone {
		c.DelChain(ch)
	}
	still := l.setsByName()
	for name, s := range have.setsByName() {
		if still[name] == nil {
			c.DelSet(s)
		}
	}
}

// differences returns the elements to delete and to add.
func differences(before, after map[string]string) (gone, added map[string]string) {
	gone, added = map[string]string{}, map[string]string{}
	for key, value := range before {
		if now, ok := after[key]; !ok || now != value {
			gone[key] = value
		}
	}
	for key, value := range after {
		if was, ok := before[key]; !ok || was != value {
			added[key] = value
		}
	}
	return gone, added
}

// replaceUnless replaces the table unless it is up to date.
func (l *layout) replaceUnless() error {
	if ok, err := l.matches(); ok && err == nil {
		return nil
	}
	return l.replace(l.clients())
}

// clients returns the clients of endpoints by set, as far as they are in the kernel.
func (l *layout) clients() map[string][]nftables.SetElement {
	out := map[string][]nftables.SetElement{}
	for name, s := range l.remember {
		all, err := l.dump(s)
		if err != nil {
			continue // the set does not exist yet
		}
		for _, e := range all {
			out[name] = append(out[name], nftables.SetElement{Key: e.Key, Timeout: e.Timeout})
		}
	}
	return out
}

// replace replaces the table. Session affinity is preserved.
func (l *layout) replace(clients map[string][]nftables.SetElement) error {
	c, err := connect()
	if err != nil {
		return err
	}
	c.AddTable(l.table) // so that the delete cannot fail because it is missing
	c.DelTable(l.table)
	if err := l.add(c, clients); err != nil {
		return err
	}
	return c.Flush()
}

// try checks whether the kernel accepts the table. It is deleted in the transaction that adds it, so no packet passes it.
func (l *layout) try() error {
	c, err := connect()
	if err != nil {
		return err
	}
	if err := l.add(c, nil); err != nil {
		return err
	}
	c.DelTable(l.table)
	return c.Flush()
}

// add adds the table with its content to a transaction.
func (l *layout) add(c *nftables.Conn, clients map[string][]nftables.SetElement) error {
	c.AddTable(l.table)
	for _, s := range slices.Concat(l.sets, slices.Collect(maps.Values(l.remember))) {
		if err := c.AddSet(s, nil); err != nil {
			return err
		}
	}
	for _, ch := range l.chains {
		c.AddChain(ch)
	}
	for _, ch := range l.chains {
		for _, r := range l.rules[ch.Name] {
			c.AddRule(r)
		}
	}
	for _, s := range l.sets {
		if err := each(s, l.contents(s), c.SetAddElements); err != nil {
			return err
		}
	}
	for name, all := range clients {
		for part := range slices.Chunk(all, chunk) {
			if err := c.SetAddElements(l.remember[name], part); err != nil {
				return err
			}
		}
	}
	return nil
}

// dump returns the elements of a set.
func (l *layout) dump(s *nftables.Set) ([]nftables.SetElement, error) {
	return dump(func(c *nftables.Conn) ([]nftables.SetElement, error) { return c.GetSetElements(s) })
}

// dump repeats a dump that was interrupted by a change.
func dump[T any](list func(c *nftables.Conn) ([]T, error)) (out []T, err error) {
	c, err := connect()
	if err != nil {
		return nil, err
	}
	for range dumpTries {
		if out, err = list(c); !is(err, unix.EINTR) {
			return out, err
		}
	}
	return nil, err
}

// matches reports whether the kernel has this table.
func (l *layout) matches() (bool, error) {
	for _, ch := range l.chains {
		have, err := dump(func(c *nftables.Conn) ([]*nftables.Rule, error) { return c.GetRules(l.table, ch) })
		if is(err, unix.ENOENT) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("list rules: %w", err)
		}
		if !sameRules(have, l.rules[ch.Name]) {
			return false, nil
		}
	}
	for _, s := range l.sets {
		elements, err := l.dump(s)
		if is(err, unix.ENOENT) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("list %s: %w", s.Name, err)
		}
		have := make(map[string]string, len(elements))
		for _, e := range elements {
			have[padded(e.Key)] = valueOf(s, e)
		}
		if !maps.Equal(have, l.contents(s)) {
			return false, nil
		}
	}
	return true, nil
}

// valueOf returns the value of a dumped element.
func valueOf(s *nftables.Set, e nftables.SetElement) string {
	if s.DataType != nftables.TypeVerdict {
		return padded(e.Val)
	}
	// Two attributes of a verdict: the code, with 8 bytes, then the chain, with a header of 4 bytes.
	if len(e.Val) < 12 {
		return ""
	}
	name, _, _ := bytes.Cut(e.Val[12:], []byte{0})
	return string(name)
}

// padded pads to a whole number of words, because the kernel may omit the padding.
func padded(b []byte) string { return string(append(slices.Clone(b), make([]byte, -len(b)&3)...)) }
