package claims

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/atomicfile"
	"monopod/internal/cause"
	"monopod/manifests"
)

// Entry is the decision for a claim.
type Entry struct {
	// Volume is the name of the PersistentVolume; empty: the claim has a directory of its own.
	Volume string `json:"volume,omitempty"`
	// Pod is the uid of the pod that owns an ephemeral volume; empty for PersistentVolumeClaim objects.
	Pod string `json:"pod,omitempty"`
	// Origin is the last known origin of the claim object.
	Origin manifests.Origin `json:"origin"`
	// Source is the source of the claim, or of the pod that owns the volume: no other space gets the storage. It is empty in entries of older
	// versions, where Origin tells.
	Source string `json:"source,omitempty"`
	// Delete is set if the directory is deleted with the object.
	Delete bool `json:"delete,omitempty"`
}

// owner returns the source that the storage belongs to; empty: it is not known, and whoever has the claim now has it.
func (e Entry) owner() string { return cmp.Or(e.Source, e.Origin.Source) }

// mayGo reports whether a claim with such references may have the storage.
func (e Entry) mayGo(to *manifests.Refs) bool { return e.owner() == "" || to.MayTake(e.owner()) }

// Book stores the decisions in a file, and has the directories of claims:
//
//	<dir>/bindings.json
//	<dir>/<namespace>/<claim>/   the data; if the file is lost, it shows that the claim has a directory
//	<dir>/.removed/              what is being removed
//
// Its methods may be called concurrently.
type Book struct {
	dir string
	// inUse reports whether a pod uses the storage of a claim, which must not change then.
	inUse func(claim string) bool

	mu sync.Mutex
	// mu guards the fields below.
	entries map[string]Entry
	objects *manifests.Objects
	// removable reports whether an object at an origin that is not in objects was deleted; nil: not known.
	removable func(manifests.Origin) bool
}

const bookFile = "bindings.json"

// OpenBook reads the book of a directory. An unreadable book is renamed, and reported as an error: claims find their directories
// again, and what the objects specify does not change.
func OpenBook(dir string, inUse func(claim string) bool) (*Book, error) {
	b := &Book{dir: dir, inUse: inUse, entries: map[string]Entry{}}
	path := filepath.Join(dir, bookFile)
	data, err := atomicfile.Read(path, atomicfile.MaxState)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &b.entries)
	} else if !errors.Is(err, atomicfile.ErrDamaged) {
		return b, err
	}
	if err != nil {
		b.entries = map[string]Entry{}
		return b, errors.Join(fmt.Errorf("read the volumes of claims: %s: %w", path, err), atomicfile.SetAside(path, path+".broken"))
	}
	return b, nil
}

// Directory returns the directory of a claim.
func (b *Book) Directory(claim string) string { return filepath.Join(b.dir, filepath.Clean("/"+claim)) }

// Bind returns the storage of a claim, and chooses it on first use. pod is the uid of the pod that owns an ephemeral volume.
func (b *Book) Bind(q Request, pod string) (Entry, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, known, err := b.decide(&q, pod)
	if err != nil || known || pod != "" && e.Volume == "" {
		return e, err // the directory of a pod's own volume is not stored
	}
	claim, before := Key(q.Claim), maps.Clone(b.entries)
	if e.Volume != "" {
		b.dropAll(func(other Entry) bool { return other.Volume == e.Volume })
	}
	b.entries[claim] = e
	if err := b.save(); err != nil {
		b.entries = before
		return Entry{}, fmt.Errorf("record the volume of claim %s: %w", claim, err)
	}
	return e, nil
}

// Check reports whether Bind would succeed, without storing anything.
func (b *Book) Check(q Request, pod string) (Entry, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, _, err := b.decide(&q, pod)
	return e, err
}

// decide returns the entry of a claim, and whether the book has it already. It completes the request.
func (b *Book) decide(q *Request, pod string) (_ Entry, known bool, _ error) {
	claim := Key(q.Claim)
	q.Taken = b.taken(q.explicit())
	want := b.wanted(*q, pod)
	e, known, foreign := b.entry(q)
	if foreign != nil && pod == "" {
		return e, false, foreign
	}
	if known && e.Pod == pod && b.stays(*q, e, want) {
		return e, true, q.has(e.Volume)
	}
	if known && e.Pod != pod && b.inUse(claim) {
		return e, true, fmt.Errorf("claim %s is still in use by another pod", claim)
	}
	if known && e.Volume != "" {
		delete(q.Taken, e.Volume)
	}
	e = Entry{Pod: pod}
	if pod == "" && want == "" && b.hasDirectory(claim) {
		return b.describe(*q, e), false, nil
	}
	var err error
	if e.Volume, err = Choose(*q); err != nil {
		return e, false, err
	}
	if foreign != nil && e.Volume != "" { // a directory of the pod's own takes nothing away
		return e, false, foreign
	}
	if other := q.Taken[e.Volume]; e.Volume != "" && other != "" && b.inUse(other) {
		return e, false, fmt.Errorf("PersistentVolume %q is still in use by claim %s", e.Volume, other)
	}
	return b.describe(*q, e), false, nil
}

// has returns an error if the volume of a claim does not exist any more.
func (q *Request) has(volume string) error {
	if volume == "" || q.volume(volume) != nil {
		return nil
	}
	if err := q.notShared(volume); err != nil {
		return err
	}
	return fmt.Errorf("PersistentVolume %q, to which claim %s is bound, was deleted", volume, Key(q.Claim))
}

// entry returns the entry of a claim, if it is known. The error is that the storage belongs to another space, which must not lose it to
// whatever writes the name of a deleted claim. Without storage, the entry of another space does not count.
func (b *Book) entry(q *Request) (e Entry, known bool, foreign error) {
	claim := Key(q.Claim)
	e, known = b.entries[claim]
	if e.mayGo(q.Refs) {
		return e, known, nil
	}
	c := cause.Cause{Kind: cause.ClaimUnbound, Fault: cause.Owned, Owner: e.owner(), Reader: q.Refs.Reader}
	text := fmt.Sprintf("claim %s: its storage belongs to source %s, and source %s does not get it; rename the claim", claim, c.Owner, c.Reader)
	switch {
	case b.hasDirectory(claim):
		c.Path = b.Directory(claim)
		text += ", or remove " + c.Path + " if its data is not needed"
	case e.Volume == "" && !b.inUse(claim):
		return Entry{}, false, nil
	}
	return e, known, cause.Wrap(errors.New(text), c)
}

// wanted returns the volume that the objects give to a claim; empty: none. If that volume cannot be mounted, a claim keeps the
// storage that it has, with its data.
func (b *Book) wanted(q Request, pod string) string {
	claim := Key(q.Claim)
	e, known := b.entries[claim]
	if q.Unmountable() != "" && (known && e.Pod == pod || pod == "" && b.hasDirectory(claim)) {
		return ""
	}
	return q.explicit()
}

// taken returns the claims of volumes. The storage of a deleted claim is reserved for it, unless that volume is wanted by name.
func (b *Book) taken(wanted string) map[string]string {
	taken := map[string]string{}
	for claim, e := range b.entries {
		if e.Volume != "" && (e.Volume != wanted || !b.isGone(claim, e)) {
			taken[e.Volume] = claim
		}
	}
	return taken
}

// stays reports whether a decision remains valid: the objects do not give another volume (want) to the claim, or a pod uses it.
func (b *Book) stays(q Request, e Entry, want string) bool {
	v := q.volume(e.Volume)
	lost := v != nil && claimRef(v) != "" && claimRef(v) != Key(q.Claim)
	return !lost && (want == "" || want == e.Volume) || b.inUse(Key(q.Claim))
}

func (b *Book) hasDirectory(claim string) bool {
	info, err := os.Stat(b.Directory(claim))
	return err == nil && info.IsDir()
}

// describe adds what must be known after the object is deleted.
func (b *Book) describe(q Request, e Entry) Entry {
	e.Source = q.Refs.Reader
	e.Delete = e.Volume == "" && e.Pod == "" && q.reclaims()
	if o := b.objects.Get(id(Key(q.Claim))); o != nil && e.Pod == "" {
		e.Origin = o.Origin
	}
	return e
}

func id(claim string) manifests.ObjectID {
	namespace, name, _ := strings.Cut(claim, "/")
	return manifests.ObjectID{Kind: "PersistentVolumeClaim", Namespace: namespace, Name: name}
}

// Follow stores the current set of objects, and returns the claims whose directories must be removed. removable reports whether an
// object that is missing at its origin was really deleted.
func (b *Book) Follow(objects *manifests.Objects, removable func(manifests.Origin) bool) ([]string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.objects, b.removable = objects, removable
	if len(b.entries) == 0 {
		return nil, nil
	}
	var gone []string
	changed := false
	for claim, e := range b.entries {
		if e.Pod != "" {
			continue
		}
		if o := objects.Get(id(claim)); o != nil {
			refs := manifests.StorageRefs(objects, o.Origin.Source)
			if c, ok := o.Object.(*corev1.PersistentVolumeClaim); ok && e.mayGo(refs) {
				b.entries[claim] = b.describe(Request{Claim: c, Refs: refs}, Entry{Volume: e.Volume})
				changed = changed || b.entries[claim] != e
			}
			continue
		}
		if e.Volume == "" && e.Delete && b.isGone(claim, e) {
			gone = append(gone, claim)
		}
	}
	if !changed {
		return gone, nil
	}
	return gone, b.save()
}

// isGone reports whether the object of a claim was deleted, and no pod uses its storage.
func (b *Book) isGone(claim string, e Entry) bool {
	known := e.Origin != (manifests.Origin{}) && b.removable != nil && b.removable(e.Origin)
	return known && b.objects.Get(id(claim)) == nil && !b.inUse(claim)
}

// Remove removes the directory of a claim that Follow returned, unless the claim exists again.
func (b *Book) Remove(claim string) error {
	trash, err := b.discard(claim)
	if err != nil || trash == "" {
		return err
	}
	return os.RemoveAll(trash)
}

// discard moves the directory of a claim to where removed directories are, and returns its new path.
func (b *Book) discard(claim string) (trash string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, known := b.entries[claim]
	if !known || !e.Delete || !b.isGone(claim, e) {
		return "", nil
	}
	if err := os.MkdirAll(filepath.Join(b.dir, removed), 0o700); err != nil {
		return "", err
	}
	if trash, err = os.MkdirTemp(filepath.Join(b.dir, removed), "*"); err != nil {
		return "", err
	}
	err = os.Rename(b.Directory(claim), filepath.Join(trash, "data"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	delete(b.entries, claim)
	_ = os.Remove(filepath.Dir(b.Directory(claim))) // the directory of the namespace, if it is empty
	return trash, b.save()
}

// removed is the directory of directories that are being removed.
const removed = ".removed"

// Clean finishes interrupted removals, removes incomplete directories, and frees the volumes of pods that are gone.
func (b *Book) Clean(podExists func(uid string) bool) error {
	errs := []error{os.RemoveAll(filepath.Join(b.dir, removed))}
	unmade, _ := filepath.Glob(filepath.Join(b.dir, "*", ".*.tmp")) // the pattern is valid
	for _, dir := range unmade {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) { // fails unless it is empty
			errs = append(errs, err)
		}
	}
	return errors.Join(errors.Join(errs...), b.release(func(e Entry) bool { return e.Pod != "" && !podExists(e.Pod) }))
}

// Release frees the ephemeral volumes of a pod.
func (b *Book) Release(pod string) error {
	return b.release(func(e Entry) bool { return e.Pod != "" && e.Pod == pod })
}

func (b *Book) release(which func(Entry) bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.dropAll(which) {
		return nil
	}
	return b.save()
}

// dropAll forgets the volumes of claims, and reports whether it found any. Who owns a claim that has a directory as well remains known.
func (b *Book) dropAll(which func(Entry) bool) (found bool) {
	for claim, e := range b.entries {
		if !which(e) {
			continue
		}
		found = true
		if delete(b.entries, claim); e.owner() != "" && b.hasDirectory(claim) {
			b.entries[claim] = Entry{Source: e.owner()}
		}
	}
	return found
}

// save writes the book and syncs it to disk.
func (b *Book) save() error {
	data, err := json.MarshalIndent(b.entries, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(b.dir, 0o750); err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(b.dir, bookFile), data, 0o600)
}
