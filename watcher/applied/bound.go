package applied

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"monopod/internal/units"
)

// Limits of all documents: the daemon reads all of them when it starts. A store that exceeds them is read all the same.
const (
	MaxObjects = 20_000
	MaxBytes   = 64 << 20
	// reserve is what documents of objects that wait for finalizers may take beyond MaxBytes: a full store must not keep them from ending.
	reserve = 1 << 20
)

// bound are the limits and the present use.
type bound struct {
	objects int
	bytes   int64
	// sizes are the sizes of the documents, by file name; nil if unknown.
	sizes map[string]int64
}

// FullError is a change that was refused because too much would be stored.
type FullError struct {
	// Objects and Bytes are what would be stored.
	Objects int
	Bytes   int64
	limits  bound
	by      map[group]Usage
}

// Usage is what objects of one kind and namespace take.
type Usage struct {
	Objects int
	Bytes   int64
}

// group is a kind in a namespace, in lower case; _ is the namespace of cluster-wide kinds.
type group struct{ kind, namespace string }

// Error implements error.
func (e *FullError) Error() string {
	return fmt.Sprintf(
		"too much is stored: with this change %d objects with %s, and at most %d with %s are allowed; nothing was changed; delete objects that are no longer needed",
		e.Objects, units.Mebibytes(float64(e.Bytes)), e.limits.objects, units.Mebibytes(float64(e.limits.bytes)),
	)
}

// Largest lists the kinds and namespaces that take most, for a message. If given, in selects namespaces; "" is the one of cluster-wide kinds.
func (e *FullError) Largest(in func(namespace string) bool) string {
	const most = 3
	var found []group
	for g := range e.by {
		if in == nil || in(strings.TrimPrefix(g.namespace, "_")) {
			found = append(found, g)
		}
	}
	slices.SortFunc(found, func(a, b group) int {
		return cmp.Or(cmp.Compare(e.by[b].Bytes, e.by[a].Bytes), cmp.Compare(e.by[b].Objects, e.by[a].Objects), cmp.Compare(a.kind, b.kind), cmp.Compare(a.namespace, b.namespace))
	})
	var texts []string
	for _, g := range found[:min(len(found), most)] {
		where := " in namespace " + g.namespace
		if g.namespace == "_" {
			where = ""
		}
		texts = append(texts, fmt.Sprintf("%d of kind %s%s with %s", e.by[g].Objects, g.kind, where, units.Mebibytes(float64(e.by[g].Bytes))))
	}
	return strings.Join(texts, ", ")
}

// Fits returns a FullError if a change would be refused.
func (s *Store) Fits(c Change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fitsLocked(c)
}

// growth is what a change adds.
type growth struct {
	objects int
	bytes   int64
	// ends reports that all documents that grow are those of objects that wait for finalizers.
	ends bool
}

// fitsLocked returns a FullError if a change adds to a store that is full. Others are always possible, so that it can be emptied.
func (s *Store) fitsLocked(c Change) error {
	for _, fresh := range []bool{false, true} { // files may have been removed by hand
		if fresh || s.bound.sizes == nil {
			sizes, err := s.readSizes()
			if err != nil {
				return err
			}
			s.bound.sizes, fresh = sizes, true
		}
		full, err := s.fullLocked(c)
		if err != nil || full == nil {
			return err
		}
		if fresh {
			return full
		}
	}
	return nil
}

func (s *Store) fullLocked(c Change) (*FullError, error) {
	more, err := s.growthLocked(c)
	if err != nil {
		return nil, err
	}
	e := &FullError{Objects: len(s.bound.sizes) + more.objects, limits: s.bound, Bytes: more.bytes}
	for _, size := range s.bound.sizes {
		e.Bytes += size
	}
	bytes := s.bound.bytes
	if more.ends {
		bytes += reserve
	}
	if (more.objects <= 0 || e.Objects <= s.bound.objects) && (more.bytes <= 0 || e.Bytes <= bytes) {
		return nil, nil
	}
	e.by = map[group]Usage{}
	for name, size := range s.bound.sizes {
		words := strings.SplitN(strings.TrimPrefix(name, keptPrefix), ".", 3)
		g := group{kind: words[0]}
		if len(words) > 1 {
			g.namespace = words[1]
		}
		u := e.by[g]
		e.by[g] = Usage{u.Objects + 1, u.Bytes + size}
	}
	return e, nil
}

// growthLocked returns what a change adds.
func (s *Store) growthLocked(c Change) (growth, error) {
	g := growth{ends: true}
	for id, manifest := range c.Put {
		document, err := Join(c.Notes[id], manifest)
		if err != nil {
			return g, err
		}
		was, there := s.bound.sizes[FileName(id)]
		if !there {
			g.objects++
		}
		more := int64(len(document)) - was
		g.bytes += more
		if note := c.Notes[id]; more > 0 && (note == nil || note.DeletionTimestamp == nil) {
			g.ends = false
		}
	}
	for _, id := range c.Remove {
		if was, there := s.bound.sizes[FileName(id)]; there {
			g.objects--
			g.bytes -= was
		}
	}
	return g, nil
}

// stored updates the sizes after a change; nil forgets them.
func (b *bound) stored(c *Change) {
	if c == nil || b.sizes == nil {
		b.sizes = nil
		return
	}
	for id, manifest := range c.Put {
		document, _ := Join(c.Notes[id], manifest) // it was stored
		b.sizes[FileName(id)] = int64(len(document))
	}
	for _, id := range c.Remove {
		delete(b.sizes, FileName(id))
	}
}

// readSizes returns the sizes of all documents. A directory that does not exist has none.
func (s *Store) readSizes() (map[string]int64, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read applied objects: %w", err)
	}
	sizes := map[string]int64{}
	for _, e := range entries {
		if !e.Type().IsRegular() || !strings.HasSuffix(e.Name(), ".yaml") {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read applied objects: %w", err)
		}
		sizes[e.Name()] = info.Size()
	}
	return sizes, nil
}

// Namespaces returns the namespaces of the objects in a change.
func (c *Change) Namespaces() map[string]bool {
	all := map[string]bool{}
	for id := range c.Put {
		all[id.Namespace] = true
	}
	return all
}
