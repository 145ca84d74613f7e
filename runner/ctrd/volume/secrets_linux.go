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
)

// What comes from Secrets, or may, is on a tmpfs of our own below the state directory and nowhere else: volumes with
// the content of objects, and the environment and arguments of containers whose variables come from Secrets. It is
// mounted when it is first needed and outlives the agent; after a reboot all of it is made again from the manifests.
//
//	<state>/secrets/volumes/<uid>/<volume>/    see package payload
//	<state>/secrets/process/<container id>     see shim.HiddenProcess

// Secrets keeps what comes from Secrets in memory.
type Secrets struct {
	Dirs  layout.Dirs
	Index *record.Index
	Host  spec.Host
	// Facts are those of the machine as it is now.
	Facts func() spec.Host

	secretsMu      sync.Mutex
	secretsMounted bool // guarded by secretsMu
}

// mountSecrets makes the tmpfs, unless it is there. Memory of it is never swapped out where the kernel can promise that.
func (r *Secrets) mountSecrets() error {
	r.secretsMu.Lock()
	defer r.secretsMu.Unlock()
	if r.secretsMounted {
		return nil
	}
	const flags = unix.MS_NODEV | unix.MS_NOSUID
	if trees.MountTmpfs(r.Dirs.SecretsDir(), "mode=0700,noswap", flags) != nil {
		if err := trees.MountTmpfs(r.Dirs.SecretsDir(), "mode=0700", flags); err != nil {
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

// Hide takes environment and arguments out of a spec that is to be stored, and writes them where the shim finds them.
func (r *Secrets) Hide(id string, s *specs.Spec) error {
	if err := r.mountSecrets(); err != nil {
		return err
	}
	path := r.Dirs.HiddenFile(id)
	if err := shim.WriteHiddenProcess(path, shim.HiddenProcess{Env: s.Process.Env, Args: s.Process.Args}); err != nil {
		return err
	}
	s.Annotations[shim.AnnotationHiddenProcess] = path
	s.Process.Env, s.Process.Args = nil, []string{"hidden"}
	return nil
}

// RemoveHidden removes the environment and arguments of a container.
func (r *Secrets) RemoveHidden(id string) error {
	return errors.Join(trees.RemoveFile(r.Dirs.HiddenFile(id)), trees.RemoveFile(r.Dirs.HiddenFile(id)+".config"))
}

// prepareFiles makes a volume of objects and fields, or brings it up to date. A volume that has had content keeps it when
// what it is made of is missing now.
func (r *Secrets) prepareFiles(pod *corev1.Pod, refs *manifests.Refs, p spec.VolumePlan) (string, error) {
	dir := filepath.Join(r.Dirs.FilesDir(string(pod.UID)), p.Name)
	err := r.writeVolume(pod, refs, p, dir)
	if spec.IsMissing(err) && payload.Written(dir) {
		return dir, nil
	}
	return dir, err
}

func (r *Secrets) writeVolume(pod *corev1.Pod, refs *manifests.Refs, p spec.VolumePlan, dir string) error {
	contents, err := spec.VolumeFiles(spec.Input{Pod: pod, Refs: refs, Host: r.Facts()}, p.Files)
	if err != nil {
		return failedMount(p.Name, err)
	}
	if err := r.mountSecrets(); err != nil {
		return failedMount(p.Name, err)
	}
	files := make(map[string]payload.File, len(contents))
	for path, f := range contents {
		files[path] = payload.File{Data: f.Data, Mode: f.Mode, UID: f.UID}
	}
	var owner *payload.Owner
	if s := pod.Spec.SecurityContext; s != nil && s.FSGroup != nil {
		owner = &payload.Owner{GID: int(*s.FSGroup)}
	}
	if err := payload.Write(dir, files, owner); err != nil {
		return failedMount(p.Name, err)
	}
	return nil
}

// SyncVolumes brings the volumes that exist up to date.
func (r *Secrets) SyncVolumes(key manifests.Key, pod *manifests.Pod) error {
	sb := r.Index.Sandbox(key)
	if sb == nil {
		return nil
	}
	plans, err := spec.Volumes(pod.Object, r.Host)
	if err != nil {
		return err
	}
	object := pod.Object.DeepCopy()
	object.UID = record.UIDOf(sb)
	if err := spec.CheckFiles(spec.Input{Pod: object, Refs: pod.Refs, Host: r.Facts()}, plans); err != nil {
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

// CleanSecrets removes volumes of pods, and processes of containers, that are not known any more.
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
