package ctrd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/logs"
	"monopod/runner/ctrd/volumes"
	"monopod/runner/spec"
)

// Limits of termination messages, for one container and all of a pod.
const (
	maxMessage    = 4096
	maxPodMessage = 12 << 10
)

func uidOf(rec *sandboxRecord) types.UID { return types.UID(rec.Labels.UID) }

// prepareVolumes makes the volumes that a container mounts. It is idempotent.
func (r *Runtime) prepareVolumes(ctx context.Context, pod *corev1.Pod, q specRequest) (map[string]spec.Volume, error) {
	plans, err := spec.Volumes(pod, r.host)
	if err != nil {
		return nil, err
	}
	if err := spec.CheckFiles(spec.Input{Pod: pod, Refs: q.refs, Host: r.facts()}, plans); err != nil {
		return nil, err
	}
	prepared := map[string]spec.Volume{}
	for _, p := range plans {
		if !manifests.UsesVolume(q.container, p.Name) {
			continue
		}
		v := spec.Volume{}
		switch {
		case p.HostPath != nil:
			v.HostPath, err = prepareHostPath(*p.HostPath)
		case p.Files != nil:
			v.ReadOnly = true
			v.HostPath, err = r.prepareFiles(pod, q.refs, p)
		case p.Image != nil:
			v.ReadOnly, v.Options = true, imageVolumeOptions()
			ref := imageOf(&manifests.Pod{Images: q.images}, manifests.ImageVolume(p.Name), p.Image.Reference)
			err = r.prepareImageVolume(ctx, q.sandbox, ref, &v)
		case p.EmptyDir != nil:
			v.HostPath, err = r.emptyDir(string(pod.UID), p.Name), r.prepareEmptyDir(string(pod.UID), p, q.sandbox.Pod)
		default:
			v, err = r.prepareStorage(pod, q, p)
		}
		if _, told := errors.AsType[*runner.StepError](err); err != nil && !told {
			err = fmt.Errorf("volume %q: %w", p.Name, err)
		}
		if err != nil {
			return nil, err
		}
		prepared[p.Name] = v
	}
	return prepared, nil
}

// checkVolumes says whether the volumes of a pod are what they should be, creating nothing.
func (r *Runtime) checkVolumes(pod *manifests.Pod) error {
	host := r.host
	plans, err := spec.Volumes(pod.Object, host)
	if err != nil {
		return err
	}
	errs := []error{spec.CheckFiles(spec.Input{Pod: pod.Object, Refs: pod.Refs, Host: host}, plans)}
	for _, p := range plans {
		if p.HostPath != nil {
			_, err := statHostPath(*p.HostPath)
			errs = append(errs, wrap(fmt.Sprintf("volume %q", p.Name), err))
		}
		if p.Files != nil {
			_, err := spec.VolumeFiles(spec.Input{Pod: pod.Object, Refs: pod.Refs, Host: host}, p.Files)
			errs = append(errs, wrap(fmt.Sprintf("volume %q", p.Name), err))
		}
		errs = append(errs, r.checkStorage(pod, p))
	}
	return errors.Join(errs...)
}

// statHostPath checks the type of a path and says whether it exists.
func statHostPath(h spec.HostPath) (exists bool, err error) {
	info, err := os.Stat(h.Path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if err != nil {
		info = nil
	}
	return info != nil, h.Check(info)
}

// prepareHostPath checks a path, creates it where its type says so, and resolves its symlinks.
func prepareHostPath(h spec.HostPath) (string, error) {
	exists, err := statHostPath(h)
	if err != nil {
		return "", err
	}
	if !exists {
		if err := createHostPath(h); err != nil {
			return "", err
		}
	}
	return filepath.EvalSymlinks(h.Path)
}

func createHostPath(h spec.HostPath) error {
	switch h.Missing() {
	case spec.CreateDirectory:
		return os.MkdirAll(h.Path, 0o755)
	case spec.CreateFile:
		f, err := os.OpenFile(h.Path, os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		return f.Close()
	}
	return nil
}

// maxEnvFile is how large a file of variables may be.
const maxEnvFile = 1 << 20

// readEnvFiles reads the files that variables of a container come from. What does not exist is left out.
func (r *Runtime) readEnvFiles(uid string, c *corev1.Container) (map[spec.EnvFile]string, error) {
	var read map[spec.EnvFile]string
	for _, f := range spec.EnvFiles(c) {
		text, err := volumes.ReadBelow(r.emptyDir(uid, f.Volume), f.Path, maxEnvFile)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, fmt.Errorf("file %q of volume %q: %w", f.Path, f.Volume, err)
		}
		if read == nil {
			read = map[spec.EnvFile]string{}
		}
		read[f] = string(text)
	}
	return read, nil
}

// messageLimit is how much of the pod's 12 KiB of termination messages each container has.
func messageLimit(pod *corev1.Pod) int {
	n := len(pod.Spec.Containers) + len(pod.Spec.InitContainers)
	return min(maxMessage, maxPodMessage/max(n, 1))
}

// podLogDir is where the log files of a pod are.
func (r *Runtime) podLogDir(key manifests.Key, uid string) string {
	return logs.PodDir(r.cfg.PodLogsDir, key.Namespace, key.Name, uid)
}

func (r *Runtime) containerLogDir(key manifests.Key, uid, container string) string {
	return filepath.Join(r.podLogDir(key, uid), container)
}

// nextLogPath names the log file after the restart count, or the next number that is free: a new instance after
// an edit has the same count as the one before.
func nextLogPath(dir string, n int) string {
	taken := map[int]bool{}
	for _, name := range names(dir) {
		taken[logs.NumberOf(name)] = true
	}
	for taken[n] {
		n++
	}
	return filepath.Join(dir, fmt.Sprintf("%d.log", n))
}

// linkName is the name under which log collectors find a container's log.
func linkName(rec *containerRecord) logs.LinkName {
	l := &rec.Labels
	return logs.LinkName{Pod: l.Key.Name, Namespace: l.Key.Namespace, Container: l.Name, ID: rec.ID}
}

func (r *Runtime) linkLog(rec *containerRecord) error {
	if r.cfg.ContainerLogsDir == "" {
		return nil
	}
	return logs.Link(r.cfg.ContainerLogsDir, linkName(rec), rec.Labels.LogPath)
}

// unlinkLog removes the link; the log itself stays until the pod goes.
func (r *Runtime) unlinkLog(rec *containerRecord) error {
	if r.cfg.ContainerLogsDir == "" {
		return nil
	}
	return logs.Unlink(r.cfg.ContainerLogsDir, linkName(rec))
}
