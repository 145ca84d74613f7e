// Package volume prepares the volumes and mounts of containers, and removes them with the pod. It must not decide which volumes a
// pod has, which runner/spec does, or which storage a claim gets, which package claims does.
package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/fault"
	"monopod/runner/ctrd/image"
	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/volumes"
	"monopod/runner/spec"
	"monopod/runner/spec/environ"
	"monopod/runner/spec/volumeplan"
)

// Pods prepares the volumes of pods.
type Pods struct {
	Dirs         layout.Dirs
	ClaimVolumes *Storage
	Secrets      *Secrets
	ImageVolumes *Images
	Host         spec.Host
	// Facts returns the current facts about the machine.
	Facts func() spec.Host
}

// PrepareVolumes creates the volumes that a container mounts. It is idempotent.
func (r *Pods) PrepareVolumes(ctx context.Context, pod *corev1.Pod, q Request) (map[string]spec.Volume, error) {
	plans, err := volumeplan.ForPod(pod, r.Host)
	if err != nil {
		return nil, err
	}
	if err := volumeplan.CheckFiles(spec.Input{Pod: pod, Refs: q.Refs, Host: r.Facts()}, plans); err != nil {
		return nil, err
	}
	prepared := map[string]spec.Volume{}
	for _, p := range plans {
		if !manifests.UsesVolume(q.Container, p.Name) {
			continue
		}
		v := spec.Volume{}
		switch {
		case p.HostPath != nil:
			v.HostPath, err = prepareHostPath(*p.HostPath)
		case p.Files != nil:
			v.ReadOnly = true
			v.HostPath, err = r.Secrets.prepareFiles(pod, q.Refs, p)
		case p.Image != nil:
			v.ReadOnly, v.Options = true, imageVolumeOptions()
			ref := ImageOf(&manifests.Pod{Images: q.Images}, manifests.ImageVolume(p.Name), p.Image.Reference)
			err = imageError(p.Name, p.Image.Reference, r.ImageVolumes.prepareImageVolume(ctx, q.Sandbox, ref, &v))
		case p.EmptyDir != nil:
			v.HostPath, err = r.Dirs.EmptyDir(string(pod.UID), p.Name), r.prepareEmptyDir(ctx, string(pod.UID), p, q.Sandbox.Pod)
		default:
			v, err = r.ClaimVolumes.prepareStorage(ctx, pod, q, p)
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

// CheckVolumes checks the volumes of a pod without creating any.
func (r *Pods) CheckVolumes(pod *manifests.Pod) error {
	host := r.Host
	plans, err := volumeplan.ForPod(pod.Object, host)
	if err != nil {
		return err
	}
	errs, need := []error{volumeplan.CheckFiles(spec.Input{Pod: pod.Object, Refs: pod.Refs, Host: host}, plans)}, int64(0)
	for _, p := range plans {
		if p.HostPath != nil {
			_, err := statHostPath(*p.HostPath)
			errs = append(errs, fault.Wrap(fmt.Sprintf("volume %q", p.Name), err))
		}
		if p.Files != nil {
			files, err := volumeplan.Files(spec.Input{Pod: withoutUID(pod.Object), Refs: pod.Refs, Host: host, API: r.Secrets.API}, p.Files)
			errs, need = append(errs, fault.Wrap(fmt.Sprintf("volume %q", p.Name), err)), need+charge(payloadOf(files))
		}
		errs = append(errs, r.ClaimVolumes.checkStorage(pod, p))
	}
	return errors.Join(append(errs, r.Secrets.checkRoom(pod.Key(), need))...)
}

// withoutUID returns a pod without its uid, so that no token is issued to it.
func withoutUID(pod *corev1.Pod) *corev1.Pod {
	if pod.UID == "" {
		return pod
	}
	c := *pod
	c.UID = ""
	return &c
}

// statHostPath checks the type of a path and reports whether it exists.
func statHostPath(h volumeplan.HostPath) (exists bool, err error) {
	info, err := os.Stat(h.Path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if err != nil {
		info = nil
	}
	return info != nil, h.Check(info)
}

// prepareHostPath checks a path, creates it if its type requires that, and resolves its symlinks.
func prepareHostPath(h volumeplan.HostPath) (string, error) {
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

func createHostPath(h volumeplan.HostPath) error {
	switch h.Missing() {
	case volumeplan.CreateDirectory:
		return os.MkdirAll(h.Path, 0o755)
	case volumeplan.CreateFile:
		// What has appeared meanwhile is not opened: it may be a FIFO or a device.
		f, err := os.OpenFile(h.Path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if errors.Is(err, fs.ErrExist) {
			if exists, err := statHostPath(h); exists || err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
		return f.Close()
	}
	return nil
}

// maxEnvFile is the maximum size of a file of variables.
const maxEnvFile = 1 << 20

// ReadEnvFiles reads the files that variables of a container come from. Missing files are left out.
func (r *Pods) ReadEnvFiles(uid string, c *corev1.Container) (map[spec.EnvFile]string, error) {
	var read map[spec.EnvFile]string
	for _, f := range environ.EnvFiles(c) {
		text, err := volumes.ReadBelow(r.Dirs.EmptyDir(uid, f.Volume), f.Path, maxEnvFile)
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

// Request is the input of a spec besides the configuration.
type Request struct {
	Pod *corev1.Pod
	// Source is the name of the source that defines the pod.
	Source string
	Refs   *manifests.Refs
	// Images are those of manifests.Pod.
	Images    map[string]string
	Container *corev1.Container
	Image     *image.Image
	Sandbox   *record.Sandbox
	ID        string
	// Message is the host file behind terminationMessagePath.
	Message string
}

// ImageOf returns the reference to run for a key of manifests.Pod.Images.
func ImageOf(pod *manifests.Pod, key, ref string) string {
	if digest := pod.Images[key]; digest != "" {
		return image.AtDigest(ref, digest)
	}
	return ref
}
