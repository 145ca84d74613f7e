package file

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// interest is what matters in one watched directory.
type interest struct {
	// all: every name but droppings; else only names.
	all   bool
	names map[string]bool
}

// interests are the directories to watch, by path without symbolic links.
type interests map[string]interest

// listen adds interest in every name of dir.
func (in interests) listen(dir string) { in[dir] = interest{all: true, names: in[dir].names} }

// follow adds interest in the entries that decide where a path leads.
func (in interests) follow(hops []hop) {
	for _, h := range hops {
		i := in[h.dir]
		if i.names == nil {
			i.names = map[string]bool{}
		}
		i.names[h.name] = true
		in[h.dir] = i
	}
}

// notifier wraps fsnotify: it watches a changing set of directories and collects the paths that changed. All methods but collect belong to
// the goroutine of the Source.
//
// fsnotify may hold its lock while it delivers an error, so the receiver must not be the goroutine that adds watches: hence the extra one.
type notifier struct {
	fs *fsnotify.Watcher
	// ids are the directories that were at the paths when their watches were added.
	ids map[string]fileID
	// trigger holds a token when dirty or lost are set.
	trigger chan struct{}
	done    chan struct{}

	mu        sync.Mutex
	interests interests
	dirty     map[string]bool
	// lost is set if events were lost: anything may have changed.
	lost bool
}

// newNotifier starts a notifier. An error means that this machine gives no (more) inotify instances.
func newNotifier() (*notifier, error) {
	w, err := fsnotify.NewBufferedWatcher(64)
	if err != nil {
		return nil, fmt.Errorf("set up inotify: %w", err)
	}
	n := &notifier{
		fs: w, ids: map[string]fileID{}, trigger: make(chan struct{}, 1), done: make(chan struct{}),
		dirty: map[string]bool{},
	}
	go n.collect()
	return n, nil
}

// close ends the notifier and waits for its goroutine.
func (n *notifier) close() {
	_ = n.fs.Close()
	<-n.done
}

// collect empties fsnotify's channels until they are closed.
func (n *notifier) collect() {
	defer close(n.done)
	events, failures := n.fs.Events, n.fs.Errors
	for events != nil || failures != nil {
		select {
		case ev, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			n.note(ev)
		case _, ok := <-failures: // in practice: the kernel's queue overflowed
			if !ok {
				failures = nil
				continue
			}
			n.wake(func() { n.lost = true })
		}
	}
}

func (n *notifier) note(ev fsnotify.Event) {
	path := filepath.Clean(ev.Name)
	n.mu.Lock()
	relevant := n.interests.concern(path)
	n.mu.Unlock()
	if relevant {
		n.wake(func() { n.dirty[path] = true })
	}
}

// concern reports whether a change of path matters.
func (in interests) concern(path string) bool {
	if _, ok := in[path]; ok { // the directory itself was removed, renamed or got other permissions
		return true
	}
	i, ok := in[filepath.Dir(path)]
	name := filepath.Base(path)
	return ok && (i.names[name] || i.all && classify(name) != dropping)
}

func (n *notifier) wake(f func()) {
	n.mu.Lock()
	f()
	n.mu.Unlock()
	select {
	case n.trigger <- struct{}{}:
	default:
	}
}

// take returns the paths that changed since the last call, and whether events were lost.
func (n *notifier) take() (dirty map[string]bool, lost bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	dirty, lost = n.dirty, n.lost
	n.dirty, n.lost = map[string]bool{}, false
	return dirty, lost
}

// watch makes the watches equal to want. Reports whether one was added, so that earlier observations may be stale.
func (n *notifier) watch(want interests) (added bool, err error) {
	current := want.resolve()
	n.mu.Lock()
	n.interests = want
	n.mu.Unlock()
	held := map[string]bool{}
	for _, dir := range n.fs.WatchList() {
		if id, ok := current[dir]; ok && id == n.ids[dir] {
			held[dir] = true
			continue
		}
		_ = n.fs.Remove(dir) // fails when the kernel was faster
	}
	n.ids = current
	for dir := range current {
		if held[dir] {
			continue
		}
		switch e := n.fs.Add(dir); {
		case e == nil:
			added = true
		case !errors.Is(e, fs.ErrNotExist): // else it vanished just now; its parent tells
			err = fmt.Errorf("watch %s: %w", dir, e)
		}
	}
	return added, err
}

// resolve looks up the directories. Two paths of one directory (bind mounts) share one inotify watch, and fsnotify
// names events by one path only: all interest in the directory goes to one of them.
func (in interests) resolve() map[string]fileID {
	ids := make(map[string]fileID, len(in))
	paths := make(map[fileID]string, len(in))
	for _, dir := range slices.Sorted(maps.Keys(in)) {
		info, err := os.Stat(dir)
		if err != nil {
			continue
		}
		id := identify(info).fileID
		first, ok := paths[id]
		if !ok {
			paths[id], ids[dir] = dir, id
			continue
		}
		in[first] = in[first].plus(in[dir])
	}
	return ids
}

func (i interest) plus(o interest) interest {
	sum := interest{all: i.all || o.all, names: map[string]bool{}}
	maps.Copy(sum.names, i.names)
	maps.Copy(sum.names, o.names)
	return sum
}
