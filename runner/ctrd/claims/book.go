package claims

import (
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
	"monopod/manifests"
)

// Entry is what was decided for a claim.
type Entry struct {
	// Volume is the name of the PersistentVolume; empty: the claim has a directory of its own.
	Volume string `json:"volume,omitempty"`
	// Pod is the uid of the pod whose ephemeral volume it is; empty for claims with a document.
	Pod string `json:"pod,omitempty"`
	// Origin is where the document of the claim is, or was.
	Origin manifests.Origin `json:"origin"`
	// Delete says that the directory goes with the document.
	Delete bool `json:"delete,omitempty"`
}

// Book keeps what was decided, in a file, and the directories that were made:
//
//	<dir>/bindings.json
//	<dir>/<namespace>/<claim>/   the data; should the file be lost, it still says that the claim has a directory
//	<dir>/.removed/              what is being removed
//
// All methods may be called from any goroutine.
type Book struct {
	dir string
	// inUse says whether any pod has the storage of a claim, which then must stay what it is.
	inUse func(claim string) bool

	mu sync.Mutex
	// All below is guarded by mu.
	entries map[string]Entry
	objects *manifests.Objects
	// removable says whether what was written at a place, and is not in objects, is really gone; nil: that is not known.
	removable func(manifests.Origin) bool
}

const bookFile = "bindings.json"

// OpenBook reads the book of a directory. A book that cannot be read is set aside, and the error says so: claims with
// directories find those again, and what is written in the documents does not change.
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
		return b, errors.Join(fmt.Errorf("which claim has which volume is not known: %s: %w", path, err), atomicfile.SetAside(path, path+".broken"))
	}
	return b, nil
}

// Directory is where the data of a claim with a directory of its own is.
func (b *Book) Directory(claim string) string { return filepath.Join(b.dir, filepath.Clean("/"+claim)) }

// Bind returns what a claim has, and decides it first if it must. pod is the uid of the pod whose ephemeral volume it is.
func (b *Book) Bind(q Request, pod string) (Entry, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, known, err := b.decide(&q, pod)
	if err != nil || known || pod != "" && e.Volume == "" {
		return e, err // a directory of the pod's own is no decision to keep
	}
	claim, before := Key(q.Claim), maps.Clone(b.entries)
	if e.Volume != "" {
		maps.DeleteFunc(b.entries, func(_ string, other Entry) bool { return other.Volume == e.Volume })
	}
	b.entries[claim] = e
	if err := b.save(); err != nil {
		b.entries = before
		return Entry{}, fmt.Errorf("record the volume of claim %s: %w", claim, err)
	}
	return e, nil
}

// Check says whether Bind would succeed, and decides nothing.
func (b *Book) Check(q Request, pod string) (Entry, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, _, err := b.decide(&q, pod)
	return e, err
}

// decide returns the entry of a claim, and whether that is the one in the book. It completes the request.
func (b *Book) decide(q *Request, pod string) (_ Entry, known bool, _ error) {
	claim := Key(q.Claim)
	q.Taken = b.taken(q.explicit())
	want := b.wanted(*q, pod)
	e, known := b.entries[claim]
	if known && e.Pod == pod && b.stays(*q, e, want) {
		if e.Volume != "" && q.volume(e.Volume) == nil {
			return e, true, fmt.Errorf("PersistentVolume %q, which claim %s is bound to, has no document any more", e.Volume, claim)
		}
		return e, true, nil
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
	if other := q.Taken[e.Volume]; e.Volume != "" && other != "" && b.inUse(other) {
		return e, false, fmt.Errorf("PersistentVolume %q is still in use by claim %s", e.Volume, other)
	}
	return b.describe(*q, e), false, nil
}

// wanted is the volume that the documents give to a claim; empty: none. A claim keeps the storage that it has, and its data, if that
// volume cannot be mounted.
func (b *Book) wanted(q Request, pod string) string {
	claim := Key(q.Claim)
	e, known := b.entries[claim]
	if q.Unmountable() != "" && (known && e.Pod == pod || pod == "" && b.hasDirectory(claim)) {
		return ""
	}
	return q.explicit()
}

// taken returns the claims of volumes. What a claim had that is gone is kept for it, unless somebody wants just that.
func (b *Book) taken(wanted string) map[string]string {
	taken := map[string]string{}
	for claim, e := range b.entries {
		if e.Volume != "" && (e.Volume != wanted || !b.isGone(claim, e)) {
			taken[e.Volume] = claim
		}
	}
	return taken
}

// stays says that what was decided holds: the documents do not give another volume (want) to the claim, or a pod uses it.
func (b *Book) stays(q Request, e Entry, want string) bool {
	v := q.volume(e.Volume)
	lost := v != nil && claimRef(v) != "" && claimRef(v) != Key(q.Claim)
	return !lost && (want == "" || want == e.Volume) || b.inUse(Key(q.Claim))
}

func (b *Book) hasDirectory(claim string) bool {
	info, err := os.Stat(b.Directory(claim))
	return err == nil && info.IsDir()
}

// describe adds what must be known when the document is gone.
func (b *Book) describe(q Request, e Entry) Entry {
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

// Follow takes notice of all documents there are now, and returns the claims whose directories are to be removed.
// removable says whether what was written at a place, and is not there now, is really gone.
func (b *Book) Follow(objects *manifests.Objects, removable func(manifests.Origin) bool) ([]string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.objects, b.removable = objects, removable
	if len(b.entries) == 0 {
		return nil, nil
	}
	var gone []string
	changed := false
	refs := manifests.StorageRefs(objects)
	for claim, e := range b.entries {
		if e.Pod != "" {
			continue
		}
		if o := objects.Get(id(claim)); o != nil {
			if c, ok := o.Object.(*corev1.PersistentVolumeClaim); ok {
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

// isGone says that a claim has no document any more, and no pod has its storage.
func (b *Book) isGone(claim string, e Entry) bool {
	known := e.Origin != (manifests.Origin{}) && b.removable != nil && b.removable(e.Origin)
	return known && b.objects.Get(id(claim)) == nil && !b.inUse(claim)
}

// Remove removes the directory of a claim that Follow named, unless it is wanted again.
func (b *Book) Remove(claim string) error {
	trash, err := b.discard(claim)
	if err != nil || trash == "" {
		return err
	}
	return os.RemoveAll(trash)
}

// discard takes a directory away from its claim and returns where it is now.
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
	_ = os.Remove(filepath.Dir(b.Directory(claim))) // the namespace's, if that was the last
	return trash, b.save()
}

// removed is the directory of what is being removed.
const removed = ".removed"

// Clean ends removals that were cut off, removes directories that were not complete yet, and frees the volumes of pods that are gone.
func (b *Book) Clean(podExists func(uid string) bool) error {
	errs := []error{os.RemoveAll(filepath.Join(b.dir, removed))}
	unmade, _ := filepath.Glob(filepath.Join(b.dir, "*", ".*.tmp")) // the pattern is valid
	for _, dir := range unmade {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) { // empty, or not what it seems
			errs = append(errs, err)
		}
	}
	return errors.Join(errors.Join(errs...), b.release(func(e Entry) bool { return e.Pod != "" && !podExists(e.Pod) }))
}

// Release frees the volumes that a pod had for itself.
func (b *Book) Release(pod string) error {
	return b.release(func(e Entry) bool { return e.Pod != "" && e.Pod == pod })
}

func (b *Book) release(which func(Entry) bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.entries)
	for claim, e := range b.entries {
		if which(e) {
			delete(b.entries, claim)
		}
	}
	if len(b.entries) == n {
		return nil
	}
	return b.save()
}

// save writes the book so that it survives a power cut.
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
