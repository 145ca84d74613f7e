package pull

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

	"monopod/internal/model"
	"monopod/runner/ctrd/image/registry"
)

// transfers are the pulls in progress.
type transfers struct {
	mu  sync.Mutex
	all map[*transfer]bool
}

// transfer is a pull in progress.
type transfer struct {
	name  string
	since time.Time
	// key identifies the lease of its content.
	key string

	mu sync.Mutex
	// blobs are the blobs to fetch that are known so far.
	blobs map[digest.Digest]ocispec.Descriptor
}

func (ts *transfers) begin(name, key string) *transfer {
	t := &transfer{name: name, key: key, since: time.Now(), blobs: map[digest.Digest]ocispec.Descriptor{}}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.all == nil {
		ts.all = map[*transfer]bool{}
	}
	ts.all[t] = true
	return t
}

func (ts *transfers) end(t *transfer) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	delete(ts.all, t)
}

// list returns the transfers of a name, or all, the oldest first.
func (ts *transfers) list(name string) []*transfer {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	var all []*transfer
	for t := range ts.all {
		if name == "" || t.name == name {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b *transfer) int { return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.name, b.name)) })
	return all
}

// expect adds blobs to fetch.
func (t *transfer) expect(blobs ...ocispec.Descriptor) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, d := range blobs {
		t.blobs[d.Digest] = d
	}
}

// watch wraps the handler of a pull and records the blobs that it returns.
func (t *transfer) watch(next images.Handler) images.Handler {
	return images.HandlerFunc(func(ctx context.Context, d ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		children, err := next.Handle(ctx, d)
		t.expect(children...)
		return children, err
	})
}

// total returns the size of all known blobs in bytes.
func (t *transfer) total() (bytes int64) {
	for _, d := range t.expected() {
		bytes += d.Size
	}
	return bytes
}

func (t *transfer) expected() []ocispec.Descriptor {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]ocispec.Descriptor, 0, len(t.blobs))
	for _, d := range t.blobs {
		all = append(all, d)
	}
	return all
}

// List returns the pulls in progress, the oldest first, of one image or with an empty reference all. Their progress is read from the content
// store at each call.
func (p *Puller) List(ctx context.Context, ref string) ([]model.Pull, error) {
	name := ""
	if ref != "" {
		var err error
		if name, err = registry.Normalize(ref); err != nil {
			return nil, err
		}
	}
	found := p.transfers.list(name)
	if len(found) == 0 {
		return nil, nil
	}
	ctx = p.Local.Namespaced(ctx)
	store := p.Local.Client.ContentStore()
	statuses, err := store.ListStatuses(ctx)
	if err != nil {
		return nil, err
	}
	offsets := map[string]int64{}
	for _, st := range statuses {
		offsets[st.Ref] = st.Offset
	}
	pulls := make([]model.Pull, 0, len(found))
	for _, t := range found {
		pull := model.Pull{Image: t.name, Since: t.since}
		for _, d := range t.expected() {
			pull.Total += d.Size
			if n, ok := offsets[remotes.MakeRefKey(ctx, d)]; ok {
				pull.Done += min(n, d.Size)
			} else if _, err := store.Info(ctx, d.Digest); err == nil {
				pull.Done += d.Size
			}
		}
		pulls = append(pulls, pull)
	}
	return pulls, nil
}
