package image

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod/runner/ctrd/image/registry"
	"monopod/runner/ctrd/image/trust"
)

// Pull is a pull that is under way.
type Pull struct {
	// Name is the normalised reference.
	Name  string
	Since time.Time
	// Done and Total are bytes of what is to be here in the end; Total is 0 until the registry has said what that is.
	Done, Total int64
}

// running are the pulls that are under way.
type running struct {
	mu  sync.Mutex
	all map[*transfer]bool
}

// transfer is one of them.
type transfer struct {
	name  string
	since time.Time
	// key is what is kept of it until the next attempt.
	key string
	// rule says who must have signed it; nil: nobody.
	rule *trust.Rule

	mu sync.Mutex
	// parts are what is to be fetched, as far as that is known.
	parts map[digest.Digest]ocispec.Descriptor
}

func (r *running) begin(name string) *transfer {
	t := &transfer{name: name, since: time.Now(), parts: map[digest.Digest]ocispec.Descriptor{}}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[*transfer]bool{}
	}
	r.all[t] = true
	return t
}

func (r *running) end(t *transfer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, t)
}

// list returns those of one name, or all, the oldest first.
func (r *running) list(name string) []*transfer {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []*transfer
	for t := range r.all {
		if name == "" || t.name == name {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b *transfer) int { return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.name, b.name)) })
	return all
}

// expect adds what is to be fetched.
func (t *transfer) expect(parts ...ocispec.Descriptor) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, d := range parts {
		t.parts[d.Digest] = d
	}
}

// watch is a handler of a pull that hears which parts there are.
func (t *transfer) watch(next images.Handler) images.Handler {
	return images.HandlerFunc(func(ctx context.Context, d ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		parts, err := next.Handle(ctx, d)
		t.expect(parts...)
		return parts, err
	})
}

// total returns how many bytes are to be fetched, as far as that is known.
func (t *transfer) total() (bytes int64) {
	for _, d := range t.expected() {
		bytes += d.Size
	}
	return bytes
}

func (t *transfer) expected() []ocispec.Descriptor {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]ocispec.Descriptor, 0, len(t.parts))
	for _, d := range t.parts {
		all = append(all, d)
	}
	return all
}

// Pulls returns the pulls that are under way, the oldest first, of one image or with an empty reference all. How far they
// are is looked up while it is asked.
func (s *Store) Pulls(ctx context.Context, ref string) ([]Pull, error) {
	name := ""
	if ref != "" {
		var err error
		if name, err = registry.Normalize(ref); err != nil {
			return nil, err
		}
	}
	found := s.running.list(name)
	if len(found) == 0 {
		return nil, nil
	}
	ctx = s.namespaced(ctx)
	store := s.client.ContentStore()
	statuses, err := store.ListStatuses(ctx)
	if err != nil {
		return nil, err
	}
	coming := map[string]int64{}
	for _, st := range statuses {
		coming[st.Ref] = st.Offset
	}
	pulls := make([]Pull, 0, len(found))
	for _, t := range found {
		p := Pull{Name: t.name, Since: t.since}
		for _, d := range t.expected() {
			p.Total += d.Size
			if n, ok := coming[remotes.MakeRefKey(ctx, d)]; ok {
				p.Done += min(n, d.Size)
			} else if _, err := store.Info(ctx, d.Digest); err == nil {
				p.Done += d.Size
			}
		}
		pulls = append(pulls, p)
	}
	return pulls, nil
}
