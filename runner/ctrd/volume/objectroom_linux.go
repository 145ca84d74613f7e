package volume

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/runner/ctrd/payload"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/shim"
	"monopod/runner/ctrd/trees"
)

// The content of objects is outside the memory limits of pods, because the agent writes it. So all of it together has a limit: what a pod
// needs beyond is refused, before it is written, and the pod waits. What exists is never taken away, so that a lower limit, or the first
// one, stops no pod; and what takes no more than before is always written.

const (
	// inodeCost is about what the kernel needs for a file, directory or link, besides its content.
	inodeCost = 1 << 10
	// maxShortLink is the longest target of a symbolic link that takes no page.
	maxShortLink = 127
)

// errNoRoom is the error of content that does not fit into the limit.
var errNoRoom = errors.New("no room for the content of objects")

// noRoom names what is needed, and the key that limits it.
func noRoom(used, more, limit int64) error {
	return cause.Wrap(fmt.Errorf("%w: the files and variables from ConfigMaps, Secrets and fields of all pods take %d KiB of memory, this needs %d more, and objectFilesMemory is %s",
		errNoRoom, used>>10, more>>10, resource.NewQuantity(limit, resource.BinarySI)), cause.Cause{Kind: cause.Mount, Fault: cause.NoRoom})
}

// charge returns what the files of a volume take: pages, and what the kernel has for each file, directory and link.
func charge(files map[string]payload.File) int64 {
	bytes, dirs, links := int64(0), map[string]bool{}, map[string]bool{}
	for path, f := range files {
		bytes += pages(len(f.Data)) + inodeCost
		for d := filepath.Dir(path); d != "."; d = filepath.Dir(d) {
			dirs[d] = true
			path = d
		}
		links[path] = true
	}
	for name := range links {
		if len("..data/"+name) > maxShortLink {
			bytes += pages(1)
		}
	}
	const own = 3 // the volume, its content and the link between them
	return bytes + inodeCost*int64(own+len(dirs)+len(links))
}

// pages rounds up to whole pages.
func pages(bytes int) int64 {
	page := os.Getpagesize()
	return int64((bytes + page - 1) / page * page)
}

// held returns what a file or a directory takes now.
func held(path string) (bytes int64) {
	_ = filepath.WalkDir(path, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // what cannot be read counts as nothing, and its replacement in full
		}
		if info, err := e.Info(); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				bytes += st.Blocks*512 + inodeCost
			}
		}
		return nil
	})
	return bytes
}

// takenAt returns what everything on the tmpfs takes, which may not be mounted yet.
func takenAt(dir string) (int64, error) {
	if !trees.IsMountPoint(dir) {
		return 0, nil
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return int64((st.Blocks-st.Bfree)*uint64(st.Bsize)) + int64(st.Files-st.Ffree)*inodeCost, nil
}

// admit reports why content must not be written that needs so much, in place of what takes was. It must be called with room locked, which
// stays locked until the content is written.
func (r *Secrets) admit(need, was int64) error {
	more := need - was
	if r.Limit <= 0 || more <= 0 {
		return nil
	}
	taken := r.taken
	if taken == nil {
		taken = takenAt
	}
	used, err := taken(r.Dirs.SecretsDir())
	if err == nil && used+more > r.Limit {
		err = noRoom(used, more, r.Limit)
	}
	return err
}

// write writes a volume if there is room for it.
func (r *Secrets) write(dir string, files map[string]payload.File, owner *payload.Owner) error {
	r.room.Lock()
	defer r.room.Unlock()
	if err := r.admit(charge(files), held(dir)); err != nil {
		return err
	}
	err := payload.Write(dir, files, owner)
	if errors.Is(err, unix.ENOSPC) {
		err = errors.Join(errNoRoom, err)
	}
	return err
}

// hide writes the environment and arguments of a container, in place of those of its earlier instances, if there is room for them.
func (r *Secrets) hide(rec *record.Container, p shim.HiddenProcess) error {
	text, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("hidden process: %w", err)
	}
	was := int64(0)
	for _, c := range r.Index.OfUID(rec.Meta.UID) {
		if c.Meta.Name == rec.Meta.Name {
			was += held(r.Dirs.HiddenFile(c.ID))
		}
	}
	r.room.Lock()
	defer r.room.Unlock()
	if err := r.admit(pages(len(text))+inodeCost, was); err != nil {
		return err
	}
	return shim.WriteHiddenProcess(r.Dirs.HiddenFile(rec.ID), p)
}

// checkRoom reports why the volumes of an edited pod, which need so much, would not fit in place of those that it has.
func (r *Secrets) checkRoom(key manifests.Key, need int64) error {
	was := int64(0)
	if sb := r.Index.Sandbox(key); sb != nil {
		was = held(r.Dirs.FilesDir(sb.Meta.UID))
	}
	r.room.Lock()
	defer r.room.Unlock()
	return r.admit(need, was)
}

// tmpfsOptions are the limits of the tmpfs itself: beyond the limit of all content, one volume may exist twice while it is replaced.
func (r *Secrets) tmpfsOptions() string {
	if r.Limit <= 0 {
		return ""
	}
	const most = 1 << 50 // more than any machine has
	size := min(r.Limit, most) + manifests.MaxVolumeBytes
	return fmt.Sprintf(",size=%d,nr_inodes=%d", size, size/inodeCost)
}
