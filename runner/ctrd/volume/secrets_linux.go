package volume

import (
	"errors"
	"os"
	"path/filepath"
	"sync"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/payload"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/shim"
	"monopod/runner/ctrd/trees"
	"monopod/runner/spec"
	"monopod/runner/spec/environ"
	"monopod/runner/spec/volumeplan"
)

// Content of Secrets is kept on a tmpfs below the state directory and nowhere else: volumes with the content of objects, and the
// environment and arguments of containers with variables from Secrets. The tmpfs is mounted on first use and outlives the agent;
// after a reboot everything is created again from the manifests.
//
//	<state>/secrets/volumes/<uid>/<volume>/    see package payload
//	<state>/secrets/process/<container id>     see shim.HiddenProcess

// Secrets keeps the content of Secrets in memory.
type Secrets struct {
	Dirs  layout.Dirs
	Index *record.Index
	Host  spec.Host
	// Facts returns the current facts about the machine.
	Facts func() spec.Host
	// API issues the tokens of pods; nil disables them.
	API spec.API
	// Limit is how much memory all content may take; 0 and less: any.
	Limit int64
	// taken is takenAt; tests replace it.
	taken func(dir string) (int64, error)

	// room is locked while content is admitted and written.
	room sync.Mutex

	secretsMu      sync.Mutex
	secretsMounted bool // guarded by secretsMu
}

// mountSecrets mounts the tmpfs, without swap where the kernel supports that. One that is mounted gets our limits, unless more is in use: the
// kernel refuses that, and the content stays.
func (r *Secrets) mountSecrets() error {
	r.secretsMu.Lock()
	defer r.secretsMu.Unlock()
	if r.secretsMounted {
		return nil
	}
	const flags = unix.MS_NODEV | unix.MS_NOSUID
	dir, plain, unswapped := r.Dirs.SecretsDir(), "mode=0700"+r.tmpfsOptions(), "mode=0700,noswap"+r.tmpfsOptions()
	if trees.IsMountPoint(dir) {
		if unix.Mount("tmpfs", dir, "tmpfs", flags|unix.MS_REMOUNT, unswapped) != nil {
			_ = unix.Mount("tmpfs", dir, "tmpfs", flags|unix.MS_REMOUNT, plain)
		}
	} else if trees.MountTmpfs(dir, unswapped, flags) != nil {
		if err := trees.MountTmpfs(dir, plain, flags); err != nil {
			return err
		}
	}
	for _, d := range []string{"volumes", "process"} {
		if err := os.MkdirAll(filepath.Join(r.Dirs.SecretsDir(), d), 0o700); err != nil {
			return err
		}
	}
	r.secretsMounted = true
	return nil
}

// Hide moves environment and arguments from a spec that will be stored to files that the shim reads.
func (r *Secrets) Hide(rec *record.Container, s *specs.Spec) error {
	if err := r.mountSecrets(); err != nil {
		return err
	}
	if err := r.hide(rec, shim.HiddenProcess{Env: s.Process.Env, Args: s.Process.Args}); err != nil {
		return err
	}
	s.Annotations[shim.AnnotationHiddenProcess] = r.Dirs.HiddenFile(rec.ID)
	s.Process.Env, s.Process.Args = nil, []string{"hidden"}
	return nil
}

// RemoveHidden removes the stored environment and arguments of a container.
func (r *Secrets) RemoveHidden(id string) error {
	return errors.Join(trees.RemoveFile(r.Dirs.HiddenFile(id)), trees.RemoveFile(r.Dirs.HiddenFile(id)+".config"))
}

// prepareFiles creates a volume from objects and fields, or updates it. A volume with content keeps it while its objects are
// missing, or there is no room for their new content.
func (r *Secrets) prepareFiles(pod *corev1.Pod, refs *manifests.Refs, p volumeplan.Plan) (string, error) {
	dir := filepath.Join(r.Dirs.FilesDir(string(pod.UID)), p.Name)
	err := r.writeVolume(pod, refs, p, dir)
	if (environ.IsMissing(err) || errors.Is(err, errNoRoom)) && payload.Written(dir) {
		return dir, nil
	}
	return dir, err
}

func (r *Secrets) writeVolume(pod *corev1.Pod, refs *manifests.Refs, p volumeplan.Plan, dir string) error {
	contents, err := volumeplan.Files(spec.Input{Pod: pod, Refs: refs, Host: r.Facts(), API: r.API}, p.Files)
	if err != nil {
		return failedMount(p.Name, err)
	}
	if err := r.mountSecrets(); err != nil {
		return failedMount(p.Name, err)
	}
	var owner *payload.Owner
	if s := pod.Spec.SecurityContext; s != nil && s.FSGroup != nil {
		owner = &payload.Owner{GID: int(*s.FSGroup)}
	}
	if err := r.write(dir, payloadOf(contents), owner); err != nil {
		return failedMount(p.Name, err)
	}
	return nil
}

func payloadOf(contents map[string]volumeplan.File) map[string]payload.File {
	files := make(map[string]payload.File, len(contents))
	for path, f := range contents {
		files[path] = payload.File{Data: f.Data, Mode: f.Mode, UID: f.UID}
	}
	return files
}

// SyncVolumes updates the existing volumes.
func (r *Secrets) SyncVolumes(key manifests.Key, pod *manifests.Pod) error {
	sb := r.Index.Sandbox(key)
	if sb == nil {
		return nil
	}
	plans, err := volumeplan.ForPod(pod.Object, r.Host)
	if err != nil {
		return err
	}
	object := pod.Object.DeepCopy()
	object.UID = record.UIDOf(sb)
	if err := volumeplan.CheckFiles(spec.Input{Pod: object, Refs: pod.Refs, Host: r.Facts()}, plans); err != nil {
		return err
	}
	var errs []error
	for _, p := range plans {
		dir := filepath.Join(r.Dirs.FilesDir(sb.Meta.UID), p.Name)
		if p.Files != nil && payload.Written(dir) {
			errs = append(errs, r.writeVolume(object, pod.Refs, p, dir))
		}
	}
	return errors.Join(errs...)
}

// CleanSecrets removes volumes of unknown pods, and environments of unknown containers.
func (r *Secrets) CleanSecrets(knownUIDs map[string]bool) error {
	var errs []error
	for _, uid := range trees.Names(filepath.Join(r.Dirs.SecretsDir(), "volumes")) {
		if !knownUIDs[uid] {
			errs = append(errs, trees.Remove(r.Dirs.FilesDir(uid)))
		}
	}
	for _, name := range trees.Names(filepath.Join(r.Dirs.SecretsDir(), "process")) {
		if r.Index.Container(name) == nil {
			errs = append(errs, trees.RemoveFile(filepath.Join(r.Dirs.SecretsDir(), "process", name)))
		}
	}
	return errors.Join(errs...)
}
