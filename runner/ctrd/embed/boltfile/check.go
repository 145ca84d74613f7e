package boltfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Visit is called for each key of a database with the names of its buckets. value is nil for a bucket. The arguments are valid until it returns.
// An error ends the check.
type Visit func(buckets []string, key, value []byte) error

// Limits that no database of containerd reaches.
const (
	maxDepth   = 64 // pages and buckets above a page
	maxNode    = 256 << 20
	maxKeySize = 32768
)

// Check reads a database of that size completely, and returns its head. After an error that matches ErrDamaged bbolt must not open it: it would
// panic, now or later, or lose data. visit may be nil.
func Check(r io.ReaderAt, size int64, visit Visit) (Head, error) {
	h, err := ReadHead(r)
	if err != nil {
		return h, err
	}
	if h.Pages < 4 || h.Pages > uint64(size)/uint64(h.PageSize) {
		return h, damage("%d pages of %d bytes in a file of %d bytes", h.Pages, h.PageSize, size)
	}
	c := &checker{r: r, head: h, seen: make([]uint64, (h.Pages+63)/64), visit: visit}
	c.mark(0)
	c.mark(1)
	if err := c.bucket(h.Root, 0); err != nil {
		return h, err
	}
	if h.Freelist == noFreelist {
		return h, nil
	}
	return h, c.freelist(h.Freelist)
}

type checker struct {
	r    io.ReaderAt
	head Head
	// seen has a bit for each page.
	seen    []uint64
	buckets []string
	visit   Visit
}

// mark marks a page as used, and reports whether it was marked before.
func (c *checker) mark(id uint64) (again bool) {
	bit := uint64(1) << (id % 64)
	again = c.seen[id/64]&bit != 0
	c.seen[id/64] |= bit
	return again
}

// page is a page with its overflow pages.
type page struct {
	id    uint64
	flags uint16
	count int
	data  []byte // with the header
}

// read reads a page that is not referenced elsewhere.
func (c *checker) read(id uint64) (page, error) {
	if id < 2 || id >= c.head.Pages {
		return page{}, damage("page %d of %d is referenced", id, c.head.Pages)
	}
	at, size := int64(id)*int64(c.head.PageSize), c.head.PageSize
	data := make([]byte, size)
	if err := c.fill(data, at); err != nil {
		return page{}, err
	}
	p := page{id: binary.NativeEndian.Uint64(data), flags: binary.NativeEndian.Uint16(data[8:]), count: int(binary.NativeEndian.Uint16(data[10:])), data: data}
	overflow := uint64(binary.NativeEndian.Uint32(data[12:]))
	switch {
	case p.id != id:
		return page{}, damage("page %d has the number %d", id, p.id)
	case overflow >= c.head.Pages-id || (overflow+1)*uint64(size) > maxNode:
		return page{}, damage("page %d spans %d pages", id, overflow)
	}
	for i := id; i <= id+overflow; i++ {
		if c.mark(i) {
			return page{}, damage("page %d is referenced twice", i)
		}
	}
	if overflow > 0 {
		p.data = make([]byte, (overflow+1)*uint64(size))
		copy(p.data, data)
		if err := c.fill(p.data[size:], at+int64(size)); err != nil {
			return page{}, err
		}
	}
	return p, nil
}

func (c *checker) fill(b []byte, at int64) error {
	if _, err := c.r.ReadAt(b, at); errors.Is(err, io.EOF) {
		return damage("it ends within a page")
	} else if err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err) // a bad block
	}
	return nil
}

// bucket checks the tree of a bucket.
func (c *checker) bucket(root uint64, depth int) error { return c.tree(root, depth, nil, nil) }

// tree checks a page and those below it. Its keys are at least least and less than limit, where these are not nil.
func (c *checker) tree(id uint64, depth int, least, limit []byte) error {
	if depth > maxDepth {
		return damage("page %d is too deep", id)
	}
	p, err := c.read(id)
	switch {
	case err != nil:
		return err
	case p.flags == leafFlag:
		return c.leaf(p, depth, least, limit)
	case p.flags != branchFlag:
		return damage("page %d has flags %#x", id, p.flags)
	case p.count == 0:
		return damage("branch page %d is empty", id)
	}
	return c.branch(p, depth, least, limit)
}

func (c *checker) branch(p page, depth int, least, limit []byte) error {
	type child struct {
		key []byte
		id  uint64
	}
	children := make([]child, p.count)
	for i := range children {
		e, err := p.element(i)
		if err != nil {
			return err
		}
		pos, ksize := binary.NativeEndian.Uint32(e), binary.NativeEndian.Uint32(e[4:])
		key, _, err := p.pair(i, pos, ksize, 0)
		if err != nil {
			return err
		}
		children[i] = child{key, binary.NativeEndian.Uint64(e[8:])}
		if err := inOrder(p, i, key, least, limit); err != nil {
			return err
		}
		least = key
	}
	for i, ch := range children {
		next := limit
		if i+1 < len(children) {
			next = children[i+1].key
		}
		if err := c.tree(ch.id, depth+1, ch.key, next); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) leaf(p page, depth int, least, limit []byte) error {
	for i := range p.count {
		e, err := p.element(i)
		if err != nil {
			return err
		}
		order := binary.NativeEndian
		flags, pos, ksize, vsize := order.Uint32(e), order.Uint32(e[4:]), order.Uint32(e[8:]), order.Uint32(e[12:])
		key, value, err := p.pair(i, pos, ksize, vsize)
		if err != nil {
			return err
		}
		if err := inOrder(p, i, key, least, limit); err != nil {
			return err
		}
		least = key
		switch flags {
		case 0:
			if err := c.tell(key, value); err != nil {
				return err
			}
		case 1:
			if err := c.child(p, depth, key, value); err != nil {
				return err
			}
		default:
			return damage("page %d has an entry with flags %#x", p.id, flags)
		}
	}
	return nil
}

// child checks a nested bucket: either inline in the value, or with a tree of its own.
func (c *checker) child(p page, depth int, key, value []byte) error {
	if len(value) < bucketHeader || depth > maxDepth {
		return damage("page %d has a bucket of %d bytes, %d pages deep", p.id, len(value), depth)
	}
	if err := c.tell(key, nil); err != nil {
		return err
	}
	c.buckets = append(c.buckets, string(key))
	defer func() { c.buckets = c.buckets[:len(c.buckets)-1] }()
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		return c.bucket(root, depth+1)
	}
	data := value[bucketHeader:]
	if len(data) < pageHeader {
		return damage("page %d has a bucket of %d bytes", p.id, len(value))
	}
	in := page{id: p.id, flags: binary.NativeEndian.Uint16(data[8:]), count: int(binary.NativeEndian.Uint16(data[10:])), data: data}
	if in.flags != leafFlag {
		return damage("page %d has a bucket with flags %#x", p.id, in.flags)
	}
	return c.leaf(in, depth+1, nil, nil)
}

func (c *checker) tell(key, value []byte) error {
	if c.visit == nil {
		return nil
	}
	if err := c.visit(c.buckets, key, value); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrDamaged, path(c.buckets, key), err)
	}
	return nil
}

// path returns a key for an error. Damaged names may have any content.
func path(buckets []string, key []byte) string {
	return fmt.Sprintf("%.100q in %.300q", key, buckets)
}

// element returns the header of an element.
func (p page) element(i int) ([]byte, error) {
	at := pageHeader + i*elementSize
	if at+elementSize > len(p.data) {
		return nil, damage("page %d has room for fewer than %d entries", p.id, p.count)
	}
	return p.data[at : at+elementSize], nil
}

// pair returns key and value of an element. pos counts from its header.
func (p page) pair(i int, pos, ksize, vsize uint32) (key, value []byte, err error) {
	from := int64(pageHeader+i*elementSize) + int64(pos)
	mid := from + int64(ksize)
	end := mid + int64(vsize)
	if from < int64(pageHeader+p.count*elementSize) || end > int64(len(p.data)) || ksize == 0 || ksize > maxKeySize {
		return nil, nil, damage("entry %d of page %d is not within it", i, p.id)
	}
	return p.data[from:mid:mid], p.data[mid:end:end], nil
}

func inOrder(p page, i int, key, least, limit []byte) error {
	order := bytes.Compare(least, key)
	if least != nil && (order > 0 || order == 0 && i > 0) || limit != nil && bytes.Compare(key, limit) >= 0 {
		return damage("entry %d of page %d is out of order", i, p.id)
	}
	return nil
}

// freelist checks that no free page is in use.
func (c *checker) freelist(id uint64) error {
	p, err := c.read(id)
	if err != nil {
		return err
	}
	if p.flags != freelistFlag {
		return damage("page %d is not a list of free pages", id)
	}
	ids, n := p.data[pageHeader:], uint64(p.count)
	if p.count == 0xFFFF { // the number is the first of them
		if len(ids) < 8 {
			return damage("the list of free pages is truncated")
		}
		n, ids = binary.NativeEndian.Uint64(ids), ids[8:]
	}
	if n > uint64(len(ids)/8) {
		return damage("the list of free pages is truncated")
	}
	for i := range n {
		free := binary.NativeEndian.Uint64(ids[i*8:])
		if free < 2 || free >= c.head.Pages || c.mark(free) {
			return damage("page %d is free and in use", free)
		}
	}
	return nil
}
