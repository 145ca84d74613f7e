package volume

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/atomicfile"
	"monopod/internal/cause"
	"monopod/internal/sharing"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/claims"
	"monopod/runner/ctrd/device"
	"monopod/runner/ctrd/fsgroup"
	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/locks"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/remote"
	"monopod/runner/ctrd/trees"
	"monopod/runner/spec"
	"monopod/runner/spec/volumeplan"
)

// storage is what a volume of a pod refers to. That of a claim is written to disk when the pod first needs it, so that it stays
// the same for the life of the pod, whatever becomes of the objects:
//
//	<pod directory>/claims/<claim>
type storage struct {
	// Volume is the name of the PersistentVolume; empty for directories of claims and for volumes in the pod itself.
	Volume string `json:"volume,omitempty"`
	// One of these is set.
	Directory string                       `json:"directory,omitempty"`
	HostPath  *corev1.HostPathVolumeSource `json:"hostPath,omitempty"`
	Local     *corev1.LocalVolumeSource    `json:"local,omitempty"`
	NFS       *corev1.NFSVolumeSource      `json:"nfs,omitempty"`
	ISCSI     *corev1.ISCSIVolumeSource    `json:"iscsi,omitempty"`
	// Secret has the login of ISCSI, as namespace/name; empty: in the pod's namespace.
	Secret string `json:"secret,omitempty"`
	// Options are mount options.
	Options []string `json:"options,omitempty"`
	// Block is set if the volume is a device.
	Block bool `json:"block,omitempty"`
}

// Storage prepares volumes that outlive a pod or are remote, and knows the storage of each claim.
type Storage struct {
	Dirs     layout.Dirs
	Index    *record.Index
	Remote   *remote.Mounter
	NodeName string
	Log      *slog.Logger

	Claims *claims.Book
	locks  locks.ByKey
	// Freed is set when a pod with claims has gone.
	Freed atomic.Bool
}

// OpenBook reads which claim has which storage.
func (r *Storage) OpenBook() {
	var err error
	if r.Claims, err = claims.OpenBook(r.Dirs.VolumesDir(), func(claim string) bool { return len(r.usersOf(claim)) > 0 }); err != nil {
		r.Log.Error("read the volumes of claims", "err", err)
	}
}

// usersOf returns the sandboxes of pods that use the storage of a claim (namespace/name), including those being removed.
func (r *Storage) usersOf(claim string) []*record.Sandbox {
	namespace, name, _ := strings.Cut(claim, "/")
	var users []*record.Sandbox
	for _, rec := range r.Index.List() {
		if rec.Meta.Key.Namespace != namespace {
			continue
		}
		if _, err := os.Lstat(filepath.Join(r.Dirs.PinDir(rec.Meta.UID), name)); err == nil {
			users = append(users, rec)
		}
	}
	return users
}

// prepareStorage prepares a volume that outlives the pod or is remote. Its errors have the reason FailedMount: the obstacle may
// last.
func (r *Storage) prepareStorage(ctx context.Context, pod *corev1.Pod, q Request, p volumeplan.Plan) (spec.Volume, error) {
	s, readOnly := storage{NFS: p.NFS, ISCSI: p.ISCSI}, false
	var err error
	if p.Claim != nil {
		readOnly = p.Claim.ReadOnly
		s, err = r.pinClaim(pod, q.Refs, p.Claim)
		q.Refs = q.Refs.Storage(p.Claim.Name)
	}
	v := spec.Volume{ReadOnly: readOnly}
	if err == nil {
		v, err = r.attach(pod, q, p.Name, s, readOnly)
	}
	if err == nil && s.owned() && !s.Block && !v.ReadOnly {
		err = r.giveToGroup(ctx, pod, p.Name, v.HostPath)
	}
	if err != nil {
		return v, failedMount(p.Name, err)
	}
	return v, nil
}

func failedMount(volume string, err error) error {
	return &runner.StepError{Reason: runner.ReasonFailedMount, Err: fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", volume, err)}
}

// unbound adds to an error that a claim has no storage, unless the error has a reason already.
func unbound(err error) error {
	if cause.Of(err).Kind != "" {
		return err
	}
	return cause.Wrap(err, cause.Cause{Kind: cause.ClaimUnbound})
}

// pinClaim returns the storage of a claim in a pod, and writes it to disk.
func (r *Storage) pinClaim(pod *corev1.Pod, refs *manifests.Refs, c *volumeplan.Claim) (storage, error) {
	var s storage
	path := filepath.Join(r.Dirs.PinDir(string(pod.UID)), c.Name)
	data, err := atomicfile.Read(path, atomicfile.MaxState)
	if err == nil {
		if err = json.Unmarshal(data, &s); err == nil {
			return s, nil
		}
		s = storage{}
	} else if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, atomicfile.ErrDamaged) {
		return s, err
	}
	if !errors.Is(err, fs.ErrNotExist) { // the book, which has it as well, says the same again
		r.Log.Warn("the storage of a claim in a pod cannot be read and is chosen again", "pod", pod.Namespace+"/"+pod.Name, "claim", c.Name, "err", err)
	}
	defer r.locks.Lock("claim " + pod.Namespace + "/" + c.Name)()
	q, owner, err := r.claimRequest(pod, refs, c)
	if err != nil {
		return s, unbound(err)
	}
	e, err := r.Claims.Bind(q, owner)
	if err != nil {
		return s, unbound(err)
	}
	if v := q.Unmountable(); v != "" {
		r.Log.Warn("a claim keeps its current storage: its PersistentVolume cannot be mounted here", "claim", claims.Key(q.Claim), "persistentvolume", v)
	}
	if s, err = r.storageOf(pod, q, e); err != nil {
		return s, unbound(err)
	}
	if data, err = json.Marshal(s); err != nil {
		return s, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return s, err
	}
	return s, atomicfile.Write(path, data, 0o600)
}

// claimRequest returns the request for a claim, and the pod that owns it.
func (r *Storage) claimRequest(pod *corev1.Pod, refs *manifests.Refs, c *volumeplan.Claim) (q claims.Request, owner string, err error) {
	var written *corev1.PersistentVolumeClaim
	if refs != nil {
		written = refs.Claims[c.Name]
	} else {
		refs = &manifests.Refs{}
	}
	q = claims.Request{Claim: written, Refs: refs.Storage(c.Name), NodeName: r.NodeName}
	switch {
	case c.Template != nil && written != nil:
		return q, "", fmt.Errorf("PVC \"%s/%s\" was not created for pod \"%s/%s\" (pod is not owner)", pod.Namespace, c.Name, pod.Namespace, pod.Name)
	case c.Template != nil:
		q.Claim, owner = c.Template, string(pod.UID)
	case written == nil:
		if err := sharing.Refused(refs, manifests.ObjectID{Kind: cause.Claim, Namespace: pod.Namespace, Name: c.Name}); err != nil {
			return q, "", err
		}
		return q, "", cause.Wrap(
			fmt.Errorf("persistentvolumeclaim %q not found", c.Name),
			cause.Cause{Kind: cause.MissingClaim, Object: cause.Object{Kind: cause.Claim, Name: c.Name}},
		)
	}
	return q, owner, r.onlyUser(pod, q.Claim)
}

// onlyUser returns an error if another pod uses a claim of the mode ReadWriteOncePod.
func (r *Storage) onlyUser(pod *corev1.Pod, c *corev1.PersistentVolumeClaim) error {
	if !slices.Contains(c.Spec.AccessModes, corev1.ReadWriteOncePod) {
		return nil
	}
	for _, rec := range r.usersOf(claims.Key(c)) {
		if rec.Meta.State == record.Active && rec.Meta.Key.Name != pod.Name && !r.completed(rec) {
			return fmt.Errorf("claim %q is in use by pod %s, and its access mode is ReadWriteOncePod", c.Name, rec.Meta.Key)
		}
	}
	return nil
}

// completed reports whether the containers of a pod have ended and are not restarted.
func (r *Storage) completed(rec *record.Sandbox) bool {
	spec := &rec.Pod.Object.Spec
	if spec.RestartPolicy == corev1.RestartPolicyAlways {
		return false
	}
	ended := map[string]bool{}
	for _, c := range r.Index.OfPod(rec.Meta.Key) { // the newest comes last
		ended[c.Meta.Name] = c.Meta.Exit != nil && (c.Meta.Exit.ExitCode == 0 || spec.RestartPolicy == corev1.RestartPolicyNever)
	}
	return !slices.ContainsFunc(spec.Containers, func(c corev1.Container) bool { return !ended[c.Name] })
}

// storageOf returns the storage that was chosen for a claim in a form that can be mounted.
func (r *Storage) storageOf(pod *corev1.Pod, q claims.Request, e claims.Entry) (storage, error) {
	s := storage{Volume: e.Volume, Block: claims.IsBlock(q.Claim)}
	switch {
	case e.Volume != "":
	case e.Pod != "":
		s.Directory = filepath.Join(r.Dirs.EphemeralDir(string(pod.UID)), q.Claim.Name)
		return s, nil
	default:
		s.Directory = r.Claims.Directory(claims.Key(q.Claim))
		return s, nil
	}
	i := slices.IndexFunc(q.Refs.Volumes, func(v *corev1.PersistentVolume) bool { return v.Name == e.Volume })
	if i < 0 {
		if err := sharing.Refused(q.Refs, manifests.ObjectID{Kind: "PersistentVolume", Name: e.Volume}); err != nil {
			return s, err
		}
		return s, fmt.Errorf("there is no PersistentVolume %q", e.Volume)
	}
	v := &q.Refs.Volumes[i].Spec
	s.HostPath, s.Local, s.NFS, s.Options = v.HostPath, v.Local, v.NFS, v.MountOptions
	if i := v.ISCSI; i != nil {
		s.ISCSI = &corev1.ISCSIVolumeSource{
			TargetPortal: i.TargetPortal, IQN: i.IQN, Lun: i.Lun, ISCSIInterface: i.ISCSIInterface, FSType: i.FSType, ReadOnly: i.ReadOnly, Portals: i.Portals,
			DiscoveryCHAPAuth: i.DiscoveryCHAPAuth, SessionCHAPAuth: i.SessionCHAPAuth, InitiatorName: i.InitiatorName,
		}
		if i.SecretRef != nil {
			s.ISCSI.SecretRef = &corev1.LocalObjectReference{Name: i.SecretRef.Name}
			s.Secret = cmp.Or(i.SecretRef.Namespace, pod.Namespace) + "/" + i.SecretRef.Name
		}
	}
	return s, nil
}

// attach makes storage available on this machine.
func (r *Storage) attach(pod *corev1.Pod, q Request, volume string, s storage, readOnly bool) (spec.Volume, error) {
	v := spec.Volume{ReadOnly: readOnly}
	if asDevice := slices.ContainsFunc(q.Container.VolumeDevices, func(d corev1.VolumeDevice) bool { return d.Name == volume }); asDevice != s.Block {
		if s.Block {
			return v, fmt.Errorf("volume %s has volumeMode Block, but is specified in volumeMounts", volume)
		}
		return v, fmt.Errorf("volume %s has volumeMode Filesystem, but is specified in volumeDevices", volume)
	}
	target := func(kind string) string { return remote.Target(r.Dirs.PodDir(string(pod.UID)), kind, volume) }
	var err error
	switch {
	case s.Directory != "":
		v.HostPath, err = s.Directory, makeVolumeDir(s.Directory)
	case s.HostPath != nil:
		v.HostPath, err = prepareHostPath(volumeplan.HostPathOf(s.HostPath))
	case s.Local != nil:
		v.HostPath, err = r.attachLocal(target("local-volume"), s, readOnly)
	case s.NFS != nil:
		v.HostPath = target("nfs")
		v.ReadOnly = readOnly || s.NFS.ReadOnly
		err = r.Remote.NFS(v.HostPath, s.NFS, readOnly, s.Options)
	case s.ISCSI != nil:
		v.ReadOnly = readOnly || s.ISCSI.ReadOnly
		v.HostPath, err = r.attachISCSI(pod, q.Refs, volume, s, v.ReadOnly)
	default:
		return v, errors.New("this kind of volume is not supported by this release")
	}
	if err != nil {
		return v, err
	}
	if s.Block {
		return asDevice(v)
	}
	return v, nil
}

// owned reports whether fsGroup applies.
func (s storage) owned() bool { return s.HostPath == nil && s.NFS == nil }

// attachLocal returns the directory or device of a local volume, which must exist. It mounts a device that has a file system.
func (r *Storage) attachLocal(target string, s storage, readOnly bool) (string, error) {
	path, err := filepath.EvalSymlinks(s.Local.Path)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err != nil || s.Block || info.Mode()&fs.ModeDevice == 0 {
		return path, err
	}
	d := remote.Disk{Device: path, ReadOnly: readOnly, Options: s.Options}
	if s.Local.FSType != nil {
		d.FSType = *s.Local.FSType
	}
	return target, r.Remote.Disk(target, d)
}

// attachISCSI logs in and returns the directory or device of a disk.
func (r *Storage) attachISCSI(pod *corev1.Pod, refs *manifests.Refs, volume string, s storage, readOnly bool) (string, error) {
	l := remote.LUN{Source: s.ISCSI, Volume: volume, ReadOnly: readOnly, Options: s.Options, Block: s.Block}
	if ref := s.ISCSI.SecretRef; ref != nil && (s.ISCSI.DiscoveryCHAPAuth || s.ISCSI.SessionCHAPAuth) {
		secret, id := refs.Secret(ref.Name), manifests.ObjectID{Kind: cause.Secret, Namespace: pod.Namespace, Name: ref.Name}
		if s.Secret != "" && refs != nil {
			secret = refs.VolumeSecrets[s.Secret]
			id.Namespace, _, _ = strings.Cut(s.Secret, "/")
		}
		if err := sharing.Refused(refs, id); secret == nil && err != nil {
			return "", err
		}
		if secret == nil {
			return "", cause.Wrap(
				fmt.Errorf("secret %q not found", ref.Name),
				cause.Cause{Kind: cause.MissingSecret, Object: cause.Object{Kind: cause.Secret, Name: ref.Name}},
			)
		}
		l.Secret = secret.Data
	}
	return r.Remote.ISCSI(r.Dirs.PodDir(string(pod.UID)), l)
}

// asDevice turns a volume whose path is a device into a device.
func asDevice(v spec.Volume) (spec.Volume, error) {
	path, err := filepath.EvalSymlinks(v.HostPath)
	if err != nil {
		return v, err
	}
	d, ok := device.At(path)
	if !ok || d.Type != "b" {
		return v, fmt.Errorf("%s is not a block device", v.HostPath)
	}
	v.Device = &d
	return v, nil
}

// makeVolumeDir creates the directory of a claim, writable for all users.
func makeVolumeDir(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	// It is completed under another name first, because an existing directory is never changed.
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	tmp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
	if err := os.MkdirAll(tmp, 0o777); err != nil {
		return err
	}
	if err := os.Chmod(tmp, 0o777); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// giveToGroup changes the group of a volume to the pod's fsGroup, once for each pod as fsGroupChangePolicy requires, later only if
// the group of its root differs.
func (r *Storage) giveToGroup(ctx context.Context, pod *corev1.Pod, volume, dir string) error {
	sec := pod.Spec.SecurityContext
	if sec == nil || sec.FSGroup == nil {
		return nil
	}
	mark := filepath.Join(r.Dirs.PodDir(string(pod.UID)), "fsgroup", volume)
	_, err := os.Lstat(mark)
	once := err == nil
	o := fsgroup.Owner{GID: *sec.FSGroup, OnRootMismatch: once}
	if p := sec.FSGroupChangePolicy; p != nil && *p == corev1.FSGroupChangeOnRootMismatch {
		o.OnRootMismatch = true
	}
	if err := fsgroup.Apply(ctx, dir, o); err != nil || once {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(mark), 0o750); err != nil {
		return err
	}
	return os.WriteFile(mark, nil, 0o600)
}

// checkStorage checks whether an edited pod would get its storage, without deciding anything. What the pod has is not checked again, except
// that it may have become that of another space: a new sandbox would not get it.
func (r *Storage) checkStorage(pod *manifests.Pod, p volumeplan.Plan) error {
	if p.Claim == nil {
		return nil
	}
	q, owner, err := r.claimRequest(pod.Object, pod.Refs, p.Claim)
	if err == nil {
		_, err = r.Claims.Check(q, owner)
	}
	if err == nil {
		return nil
	}
	if c := cause.Of(err); c.Kind != cause.NotShared && c.Fault != cause.Owned {
		if sb := r.Index.Sandbox(pod.Key()); sb != nil {
			if _, err := os.Lstat(filepath.Join(r.Dirs.PinDir(sb.Meta.UID), p.Claim.Name)); err == nil {
				return nil
			}
		}
	}
	return failedMount(p.Name, unbound(err))
}

// RemovePodDir removes the directory of a pod with all mounts below it, and the other directories.
func (r *Storage) RemovePodDir(uid string, others ...string) error {
	dir := r.Dirs.PodDir(uid)
	err := r.Remote.UnmountBelow(dir)
	if err == nil {
		err = r.Remote.Logout(dir)
	}
	if err != nil {
		return errors.Join(err, trees.Remove(others...))
	}
	claimed := len(trees.Names(r.Dirs.PinDir(uid))) > 0
	err = trees.Remove(append(others, dir)...)
	if _, serr := os.Lstat(dir); !claimed || !errors.Is(serr, fs.ErrNotExist) {
		return err
	}
	if rerr := r.Claims.Release(uid); rerr != nil {
		return errors.Join(err, fmt.Errorf("free the volumes of pod %s: %w", uid, rerr))
	}
	r.Freed.Store(true)
	return err
}
