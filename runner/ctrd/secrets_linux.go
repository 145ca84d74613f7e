package ctrd

import (
	"errors"
	"os"
	"path/filepath"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner/ctrd/payload"
	"monopod/runner/ctrd/shim"
	"monopod/runner/spec"
)

// What comes from Secrets, or may, is on a tmpfs of our own below the state directory and nowhere else: volumes with
// the content of objects, and the environment and arguments of containers whose variables come from Secrets. It is
// mounted when it is first needed and outlives the agent; after a reboot all of it is made again from the manifests.
//
//	<state>/secrets/volumes/<uid>/<volume>/    see package payload
//	<state>/secrets/process/<container id>     see shim.HiddenProcess

func (r *Runtime) secretsDir() string { return r.path("secrets") }

func (r *Runtime) filesDir(uid string) string { return filepath.Join(r.secretsDir(), "volumes", uid) }

func (r *Runtime) hiddenFile(id string) string {
	return filepath.Join(r.secretsDir(), "process", id)
}

// mountSecrets makes the tmpfs, unless it is there. Memory of it is never swapped out where the kernel can promise that.
func (r *Runtime) mountSecrets() error {
	r.secretsMu.Lock()
	defer r.secretsMu.Unlock()
	if r.secretsMounted {
		return nil
	}
	const flags = unix.MS_NODEV | unix.MS_NOSUID
	if mountTmpfs(r.secretsDir(), "mode=0700,noswap", flags) != nil {
		if err := mountTmpfs(r.secretsDir(), "mode=0700", flags); err != nil {
			return err
		}
	}
	for _, d := range []string{"volumes", "process"} {
		if err := os.MkdirAll(filepath.Join(r.secretsDir(), d), 0o700); err != nil {
			return err
		}
	}
	r.secretsMounted = true
	return nil
}

// hide takes environment and arguments out of a spec that is to be stored, and writes them where the shim finds them.
func (r *Runtime) hide(id string, s *specs.Spec) error {
	if err := r.mountSecrets(); err != nil {
		return err
	}
	path := r.hiddenFile(id)
	if err := shim.WriteHiddenProcess(path, shim.HiddenProcess{Env: s.Process.Env, Args: s.Process.Args}); err != nil {
		return err
	}
	s.Annotations[shim.AnnotationHiddenProcess] = path
	s.Process.Env, s.Process.Args = nil, []string{"hidden"}
	return nil
}

func (r *Runtime) removeHidden(id string) error {
	return errors.Join(removeFile(r.hiddenFile(id)), removeFile(r.hiddenFile(id)+".config"))
}

// prepareFiles makes a volume of objects and fields, or brings it up to date. A volume that has had content keeps it when
// what it is made of is missing now.
func (r *Runtime) prepareFiles(pod *corev1.Pod, refs *manifests.Refs, p spec.VolumePlan) (string, error) {
	dir := filepath.Join(r.filesDir(string(pod.UID)), p.Name)
	err := r.writeVolume(pod, refs, p, dir)
	if spec.IsMissing(err) && payload.Written(dir) {
		return dir, nil
	}
	return dir, err
}

func (r *Runtime) writeVolume(pod *corev1.Pod, refs *manifests.Refs, p spec.VolumePlan, dir string) error {
	contents, err := spec.VolumeFiles(spec.Input{Pod: pod, Refs: refs, Host: r.facts()}, p.Files)
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

// syncVolumes brings the volumes that exist up to date.
func (r *Runtime) syncVolumes(key manifests.Key, pod *manifests.Pod) error {
	sb := r.index.sandbox(key)
	if sb == nil {
		return nil
	}
	plans, err := spec.Volumes(pod.Object, r.host)
	if err != nil {
		return err
	}
	object := pod.Object.DeepCopy()
	object.UID = uidOf(sb)
	if err := spec.CheckFiles(spec.Input{Pod: object, Refs: pod.Refs, Host: r.facts()}, plans); err != nil {
		return err
	}
	var errs []error
	for _, p := range plans {
		dir := filepath.Join(r.filesDir(sb.Labels.UID), p.Name)
		if p.Files != nil && payload.Written(dir) {
			errs = append(errs, r.writeVolume(object, pod.Refs, p, dir))
		}
	}
	return errors.Join(errs...)
}

// cleanSecrets removes volumes of pods, and processes of containers, that are not known any more.
func (r *Runtime) cleanSecrets(knownUIDs map[string]bool) error {
	var errs []error
	for _, uid := range names(filepath.Join(r.secretsDir(), "volumes")) {
		if !knownUIDs[uid] {
			errs = append(errs, removeTree(r.filesDir(uid)))
		}
	}
	for _, name := range names(filepath.Join(r.secretsDir(), "process")) {
		if r.index.container(name) == nil {
			errs = append(errs, removeFile(filepath.Join(r.secretsDir(), "process", name)))
		}
	}
	return errors.Join(errs...)
}
