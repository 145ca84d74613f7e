// Package layout names every file and directory of an instance. It must not create, read or remove any.
package layout

import (
	"io/fs"
	"path/filepath"
	"strings"

	"monopod/manifests"
	"monopod/runner/ctrd/logs"
)

// Dirs names the directories and files of one instance.
type Dirs struct {
	// Root is the root directory, State the state directory, PodLogs the directory of log files, ContainerLogs that of the links
	// to them; empty: none.
	Root, State, PodLogs, ContainerLogs string
}

// VolumesDir contains the directories of claims.
func (r Dirs) VolumesDir() string { return filepath.Join(r.Root, "volumes") }

// PinDir contains one file for each claim of a pod.
func (r Dirs) PinDir(uid string) string { return filepath.Join(r.PodDir(uid), "claims") }

// EphemeralDir contains the directories of the generic ephemeral volumes of a pod.
func (r Dirs) EphemeralDir(uid string) string {
	return filepath.Join(r.PodDir(uid), "volumes", "monopod.dev~ephemeral")
}

// EmptyDir is the path of an emptyDir volume.
func (r Dirs) EmptyDir(uid, volume string) string {
	return filepath.Join(r.PodDir(uid), "volumes", "kubernetes.io~empty-dir", volume)
}

// EndpointPath turns unix:///path into the path.
func EndpointPath(endpoint string) string { return strings.TrimPrefix(endpoint, "unix://") }

// MessageCopy is the file to which the shim copies the message of a container.
func (r Dirs) MessageCopy(uid, id string) string {
	return filepath.Join(r.PodDir(uid), "messages", id)
}

// SubPathDir contains the bind mounts of a container that is being created.
func (r Dirs) SubPathDir(container string) string { return r.Path("subpaths", container) }

// ImageVolumeDir contains the directories for the VOLUMEs of a container's image.
func (r Dirs) ImageVolumeDir(uid, container string) string {
	return filepath.Join(r.PodDir(uid), "image-volumes", container)
}

// PauseDir is the bundle of a sandbox's process 1.
func (r Dirs) PauseDir(id string) string { return r.Path("pause", id) }

// PauseRoot is the state directory of the OCI runtime for process 1 of sandboxes.
func (r Dirs) PauseRoot() string { return r.Path("pause-runc") }

// Path returns a path below the state directory.
func (r Dirs) Path(elem ...string) string {
	return filepath.Join(append([]string{r.State}, elem...)...)
}

// PodsDir contains one directory for each pod.
func (r Dirs) PodsDir() string { return filepath.Join(r.Root, "pods") }

// PodDir contains the files and volumes of a pod.
func (r Dirs) PodDir(uid string) string { return filepath.Join(r.PodsDir(), uid) }

// ExitFile is the record that a shim writes when its container ends.
func (r Dirs) ExitFile(id string) string { return r.Path("exits", id+".json") }

// NsDir contains the pinned namespaces of a sandbox.
func (r Dirs) NsDir(id string) string { return r.Path("ns", id) }

// ShmDir is the /dev/shm of a sandbox.
func (r Dirs) ShmDir(id string) string { return r.Path("shm", id) }

// HandlersDir contains the state directories of the OCI runtimes of RuntimeClasses.
func (r Dirs) HandlersDir() string { return r.Path("handlers") }

// PodFilesDir contains the files that all containers of a pod share.
func (r Dirs) PodFilesDir(uid string) string { return filepath.Join(r.PodDir(uid), "files") }

// SecretsDir is the tmpfs for content of Secrets.
func (r Dirs) SecretsDir() string { return r.Path("secrets") }

// FilesDir contains the volumes of a pod with the content of objects.
func (r Dirs) FilesDir(uid string) string { return filepath.Join(r.SecretsDir(), "volumes", uid) }

// HiddenFile contains the environment and arguments of a container with variables from Secrets.
func (r Dirs) HiddenFile(id string) string {
	return filepath.Join(r.SecretsDir(), "process", id)
}

// ContentDir contains the blobs of the embedded containerd.
func (r Dirs) ContentDir() string {
	return filepath.Join(r.Root, "containerd", "io.containerd.content.v1.content")
}

// Modes returns the modes of the directories of an instance, beside those of the embedded containerd. Other users of the machine must not reach
// what is in them: the /dev/shm and the emptyDirs of pods are open to all users, and images have programs with the setuid bit. The users
// of pods with a user namespace are such users, and need a way to their namespaces and root file systems, though not to volumes, which
// the runtime opens for them.
func (r Dirs) Modes() map[string]fs.FileMode {
	const private, guarded, passable = 0o700, 0o750, 0o711
	return map[string]fs.FileMode{
		r.PodsDir(): guarded, r.VolumesDir(): guarded, filepath.Join(r.Root, "cni"): guarded,
		r.Path("cni"): private, r.Path("exec"): private, r.Path("exits"): private, r.HandlersDir(): private, r.Path("image-volumes"): private,
		r.Path("logs"): private, r.Path("ns"): passable, r.Path("pause"): passable, r.PauseRoot(): private, r.SecretsDir(): private,
		r.Path("shm"): private, r.Path("subpaths"): private,
	}
}

// PodLogDir contains the log files of a pod.
func (r Dirs) PodLogDir(key manifests.Key, uid string) string {
	return logs.PodDir(r.PodLogs, key.Namespace, key.Name, uid)
}

// ContainerLogDir contains the log files of a container.
func (r Dirs) ContainerLogDir(key manifests.Key, uid, container string) string {
	return filepath.Join(r.PodLogDir(key, uid), container)
}
