package ctrd

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod/runner/ctrd/logs"
)

// What a container leaves goes when its successor has taken its place: the record and the snapshot at once, its log
// when it is not the previous one any more. The rest of this file is about what no such event comes for: a kill or
// a power cut between two steps of a removal, and a disk that is nearly full.

// garbageEvery is the period of the safety net.
const garbageEvery = 6 * time.Hour

// ownerName is a link in the log directory of a pod to the root directory of the instance that made it: the directory
// that it is in may be shared with a kubelet, and after a power cut no record may know of the pod any more.
const ownerName = ".monopod"

// logGroup is a directory with the logs of one container: of all its instances.
type logGroup struct {
	dir   string
	files []logItem
}

type logItem struct {
	name string
	size int64
}

// needed says which logs of a container somebody may ask for: those of the instances that there are, and that of the
// one before them, for `logs --previous`. used are the numbers of the former.
func needed(files []logItem, used map[int]bool) func(n int) bool {
	first := -1
	for n := range used {
		if first < 0 || n < first {
			first = n
		}
	}
	previous := -1
	for _, f := range files {
		if n := logs.NumberOf(f.name); n > previous && (first < 0 || n < first) {
			previous = n
		}
	}
	return func(n int) bool { return n >= previous }
}

// outdated are the log files of instances before the previous one.
func outdated(files []logItem, used map[int]bool) []logItem {
	keep := needed(files, used)
	var old []logItem
	for _, f := range files {
		if n := logs.NumberOf(f.name); n >= 0 && !keep(n) {
			old = append(old, f)
		}
	}
	return old
}

// expendable are the log files that may go when the disk is nearly full: those of instances that are gone, and what
// was rotated away of those that have ended. running are the numbers of the others; what they write stays, and so does
// the newest: its instance may just be being made.
func expendable(files []logItem, used, running map[int]bool) []logItem {
	var out []logItem
	newest := -1
	for _, f := range files {
		newest = max(newest, logs.NumberOf(f.name))
	}
	for _, f := range files {
		n := logs.NumberOf(f.name)
		rotatedAway := filepath.Ext(f.name) != ".log"
		if n >= 0 && !running[n] && (!used[n] && n != newest || used[n] && rotatedAway) {
			out = append(out, f)
		}
	}
	return out
}

// collectGarbage has containerd finish what an earlier one began, then looks for what was left behind, once in a long time.
func (r *Runtime) collectGarbage(ctx context.Context) {
	if r.cfg.Endpoint == "" && sleep(ctx, finishAfter) {
		if err := r.finishCollection(ctx); err != nil {
			r.log.Warn("have containerd remove what an earlier one has left", "err", err)
		}
	}
	for sleep(ctx, garbageEvery) {
		if err := errors.Join(r.cleanLogs(), r.cleanLinks(false)); err != nil {
			r.log.Warn("clean up logs", "err", err)
		}
	}
}

// finishAfter is how long after the start containerd is asked to finish: it collects a second after a deletion, and five after its start.
const finishAfter = 4 * time.Second

// unneeded names what finishCollection makes and deletes.
const unneeded = "monopod.dev/unneeded"

// finishCollection deletes a blob and a snapshot that nobody needs. containerd first forgets what nobody needs and then removes the
// files; when it is killed in between, these stay until something else is deleted, because only then it looks for them.
func (r *Runtime) finishCollection(ctx context.Context) error {
	blob := ocispec.Descriptor{MediaType: "text/plain", Digest: digest.FromString(unneeded), Size: int64(len(unneeded))}
	store, snapshotter := r.client.ContentStore(), r.client.SnapshotService(r.cfg.Snapshotter)
	if err := content.WriteBlob(ctx, store, unneeded, strings.NewReader(unneeded), blob); err != nil {
		return err
	}
	if _, err := snapshotter.Prepare(ctx, unneeded, ""); err != nil && !errdefs.IsAlreadyExists(err) {
		return err
	}
	return errors.Join(ignoreNotFound(store.Delete(ctx, blob.Digest)), ignoreNotFound(snapshotter.Remove(ctx, unneeded)))
}

// cleanLogs removes the log directories of pods that are gone, and logs that nobody can ask for.
func (r *Runtime) cleanLogs() error {
	known := r.knownUIDs()
	var errs []error
	for _, name := range names(r.cfg.PodLogsDir) {
		uid := afterLast(name, '_')
		dir := filepath.Join(r.cfg.PodLogsDir, name)
		if !known[uid] && r.ownsLogs(dir) {
			errs = append(errs, removeTree(dir))
		}
	}
	for _, g := range r.logGroups() {
		used, _ := r.logNumbers(g.dir)
		errs = append(errs, g.remove(outdated(g.files, used)))
	}
	return errors.Join(errs...)
}

// afterLast is what comes after the last separator; empty: there is none.
func afterLast(s string, sep byte) string {
	i := strings.LastIndexByte(s, sep)
	if i < 0 {
		return ""
	}
	return s[i+1:]
}

// knownUIDs are those of pods that there is a record of. A new pod has one before it has files.
func (r *Runtime) knownUIDs() map[string]bool {
	known := map[string]bool{}
	for _, rec := range r.index.list() {
		known[rec.Labels.UID] = true
	}
	for _, rec := range r.index.all() {
		known[rec.Labels.UID] = true
	}
	return known
}

// ownsLogs says that the log directory of a pod is ours.
func (r *Runtime) ownsLogs(dir string) bool {
	root, err := os.Readlink(filepath.Join(dir, ownerName))
	return err == nil && root == r.cfg.RootDirectory
}

// ownLogs makes the directory for the logs of a container, and says that it is ours.
func (r *Runtime) ownLogs(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	err := os.Symlink(r.cfg.RootDirectory, filepath.Join(filepath.Dir(dir), ownerName))
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// logGroups lists the logs in our directories.
func (r *Runtime) logGroups() []logGroup {
	var groups []logGroup
	for _, dir := range r.ownLogDirs() {
		for _, container := range names(dir) {
			g := logGroup{dir: filepath.Join(dir, container)}
			entries, _ := os.ReadDir(g.dir) // gone meanwhile: nothing is in it
			for _, e := range entries {
				if st, err := e.Info(); err == nil && st.Mode().IsRegular() {
					g.files = append(g.files, logItem{name: e.Name(), size: st.Size()})
				}
			}
			groups = append(groups, g)
		}
	}
	return groups
}

func (g logGroup) remove(files []logItem) error {
	var errs []error
	for _, f := range files {
		errs = append(errs, removeFile(filepath.Join(g.dir, f.name)))
	}
	return errors.Join(errs...)
}

// logNumbers are those of the instances that write, or wrote, into a directory, and those of them that have not ended.
func (r *Runtime) logNumbers(dir string) (used, running map[int]bool) {
	used, running = map[int]bool{}, map[int]bool{}
	for _, rec := range r.index.all() {
		if filepath.Dir(rec.Labels.LogPath) != dir {
			continue
		}
		n := logs.NumberOf(filepath.Base(rec.Labels.LogPath))
		used[n] = true
		running[n] = running[n] || rec.Labels.Exit == nil
	}
	return used, running
}

// dropOldLogs removes the logs of a container's instances before the previous one, when an instance has gone.
func (r *Runtime) dropOldLogs(gone *containerRecord) error {
	g := logGroup{dir: filepath.Dir(gone.Labels.LogPath)}
	for _, name := range names(g.dir) {
		g.files = append(g.files, logItem{name: name})
	}
	used, _ := r.logNumbers(g.dir)
	if len(used) == 0 {
		return nil // the pod goes, or the next one is about to be made: its previous one is the last
	}
	return g.remove(outdated(g.files, used))
}

// cleanLinks removes links to logs that are gone. While nothing is being made it removes all that belong to no container.
func (r *Runtime) cleanLinks(quiet bool) error {
	if r.cfg.ContainerLogsDir == "" {
		return nil
	}
	var errs []error
	for _, name := range names(r.cfg.ContainerLogsDir) {
		link := filepath.Join(r.cfg.ContainerLogsDir, name)
		target, err := os.Readlink(link)
		if err != nil || filepath.Dir(filepath.Dir(filepath.Dir(target))) != r.cfg.PodLogsDir {
			continue
		}
		id := afterLast(strings.TrimSuffix(name, ".log"), '-')
		if r.index.container(id) != nil {
			continue
		}
		pod := filepath.Dir(filepath.Dir(target))
		_, gone := os.Lstat(pod)
		if errors.Is(gone, fs.ErrNotExist) || quiet && r.ownsLogs(pod) {
			errs = append(errs, removeFile(link))
		}
	}
	return errors.Join(errs...)
}

// ReclaimContainers makes room on the disk with what containers that have ended left: their writable layers and the
// logs that nobody needs to understand what runs. It returns how many bytes that were. Their records stay, and with
// them the status of their pods.
func (r *Runtime) ReclaimContainers(ctx context.Context) (sum int64, err error) {
	err = r.makingRoom(func() error {
		n, err := r.reclaimContainers(r.ns(ctx))
		sum += n
		return err
	})
	return sum, err
}

func (r *Runtime) reclaimContainers(ctx context.Context) (int64, error) {
	sum, errs := int64(0), []error{r.cleanLogs()}
	for _, g := range r.logGroups() {
		used, running := r.logNumbers(g.dir)
		for _, f := range expendable(g.files, used, running) {
			if err := removeFile(filepath.Join(g.dir, f.name)); err != nil {
				errs = append(errs, err)
				continue
			}
			sum += f.size
		}
	}
	for _, rec := range r.index.all() {
		n, err := r.dropLayer(ctx, rec)
		sum += n
		errs = append(errs, err)
	}
	return sum, errors.Join(append(errs, r.freeLayers(ctx))...)
}

// freeLayers has containerd give back at once what was removed, by whomever: the end of a lease can be waited for.
func (r *Runtime) freeLayers(ctx context.Context) error {
	l, err := r.client.LeasesService().Create(ctx, leases.WithRandomID(), leases.WithExpiration(time.Minute))
	if err == nil {
		err = r.client.LeasesService().Delete(ctx, l, leases.SynchronousDelete)
	}
	return wrap("collect garbage", err)
}

// dropLayer removes the writable layer of a container that has ended. Nothing reads it any more: the next instance has
// one of its own.
func (r *Runtime) dropLayer(ctx context.Context, rec *containerRecord) (int64, error) {
	if rec.Labels.Exit == nil {
		return 0, nil
	}
	defer r.locks.lock(rec.ID)()
	if t, err := r.task(ctx, rec.ID); err != nil || t != nil {
		return 0, err
	}
	s := r.client.SnapshotService(r.cfg.Snapshotter)
	layer, err := s.Usage(ctx, rec.ID)
	if err == nil {
		err = s.Remove(ctx, rec.ID)
	}
	if err != nil {
		return 0, wrap("remove the layer of container "+rec.ID, ignoreNotFound(err))
	}
	return layer.Size, nil
}
