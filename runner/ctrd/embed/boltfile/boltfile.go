// Package boltfile reads bbolt databases without trusting their content: it checks them, and copies one that another part of this process has
// open. It owns no file.
//
// It must not import bbolt, which maps the file into memory: damaged content would end the process by a panic in another goroutine or by a
// SIGBUS. Memory and time are bounded by the size of the file.
package boltfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// ErrDamaged matches all errors about the content of a database.
var ErrDamaged = errors.New("the database is damaged")

func damage(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrDamaged}, args...)...)
}

// The layout of bbolt files, version 2.
const (
	magic        = 0xED0CDAED
	version      = 2
	pageHeader   = 16
	metaSize     = 64
	branchFlag   = 0x01
	leafFlag     = 0x02
	freelistFlag = 0x10
	elementSize  = 16 // of leaves and branches
	bucketHeader = 16
	noFreelist   = ^uint64(0)
	minPage      = 512
	maxPage      = 1 << 20
)

// Head is the content of a valid meta page.
type Head struct {
	PageSize int
	// Root is the page of the root bucket, Freelist that of the free pages. Pages is the number of pages, in use or free.
	Root, Freelist, Pages uint64
	// Tx counts the transactions.
	Tx uint64
	// Torn reports whether the other meta page is invalid, so that the last transaction may be missing.
	Torn bool
}

// Size returns the size of the database in bytes.
func (h Head) Size() int64 { return int64(h.Pages) * int64(h.PageSize) }

// ReadHead reads the meta pages and returns the valid one with the latest transaction.
func ReadHead(r io.ReaderAt) (Head, error) {
	first, err := readMeta(r, 0)
	if err != nil && !errors.Is(err, ErrDamaged) {
		return Head{}, err
	}
	// The offset of the second one depends on the page size, which a damaged first one may not contain.
	second, found := Head{}, false
	if err == nil {
		h, serr := readMeta(r, int64(first.PageSize))
		second, found = h, serr == nil && h.PageSize == first.PageSize
	} else {
		for size := minPage; size <= maxPage && !found; size *= 2 {
			h, serr := readMeta(r, int64(size))
			second, found = h, serr == nil && h.PageSize == size
		}
	}
	switch {
	case err != nil && !found:
		return Head{}, damage("neither of its meta pages is valid")
	case err != nil:
		second.Torn = true
		return second, nil
	case !found:
		first.Torn = true
		return first, nil
	case second.Tx > first.Tx:
		return second, nil
	}
	return first, nil
}

// readMeta reads the meta page at an offset.
func readMeta(r io.ReaderAt, at int64) (Head, error) {
	var b [pageHeader + metaSize]byte
	if _, err := r.ReadAt(b[:], at); errors.Is(err, io.EOF) {
		return Head{}, damage("it ends within a meta page")
	} else if err != nil {
		return Head{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	m, order := b[pageHeader:], binary.NativeEndian
	sum := fnv.New64a()
	_, _ = sum.Write(m[:metaSize-8])
	h := Head{
		PageSize: int(order.Uint32(m[8:])), Root: order.Uint64(m[16:]),
		Freelist: order.Uint64(m[32:]), Pages: order.Uint64(m[40:]), Tx: order.Uint64(m[48:]),
	}
	switch {
	case order.Uint32(m) != magic || order.Uint32(m[4:]) != version:
		return Head{}, damage("meta page %d is not valid", at)
	case order.Uint64(m[56:]) != sum.Sum64():
		return Head{}, damage("the checksum of meta page %d does not match", at)
	case h.PageSize < minPage || h.PageSize > maxPage || h.PageSize&(h.PageSize-1) != 0:
		return Head{}, damage("pages of %d bytes", h.PageSize)
	}
	return h, nil
}

// copyTries is how often Copy starts again because the database was modified meanwhile.
const copyTries = 100

// ErrBusy reports a database that was modified all the time.
var ErrBusy = errors.New("the database is written continuously")

// Copy writes the state of a database after one of its transactions to w, and returns its head. Transactions may be committed meanwhile. bbolt
// never overwrites a page of the last transaction, and writes the meta page last, so all data that was read between two equal meta pages is
// consistent.
func Copy(w *os.File, r io.ReaderAt) (Head, error) {
	for range copyTries {
		before, err := ReadHead(r)
		if err != nil {
			return Head{}, err
		}
		if _, err := w.Seek(0, io.SeekStart); err != nil {
			return Head{}, err
		}
		if _, err := io.Copy(w, io.NewSectionReader(r, 0, before.Size())); err != nil {
			return Head{}, err
		}
		if after, err := ReadHead(r); err == nil && after == before {
			return before, w.Truncate(before.Size())
		}
	}
	return Head{}, ErrBusy
}
