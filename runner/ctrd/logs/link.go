package logs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// maxFileName is the longest file name of ext4 and most others.
const maxFileName = 255

// LinkName identifies the link to a container's log, as kubelet names those in /var/log/containers.
type LinkName struct {
	Pod       string
	Namespace string
	Container string
	ID        string
}

// Path returns the path of the link in dir: <pod>_<ns>_<container>-<id>.log. If it is too long, the name of the pod is truncated. The
// kubelet truncates the end, including the id, so that links of different containers would collide.
func (n LinkName) Path(dir string) string {
	rest := "_" + n.Namespace + "_" + n.Container + "-" + n.ID + ".log"
	return filepath.Join(dir, cut(n.Pod, maxFileName-len(rest))+rest)
}

// PodDir returns the directory for the logs of a pod in dir: <ns>_<name>_<uid>. If it is too long, the name of the pod is truncated; the
// kubelet cannot run such a pod.
func PodDir(dir, namespace, name, uid string) string {
	first, last := namespace+"_", "_"+uid
	return filepath.Join(dir, first+cut(name, maxFileName-len(first)-len(last))+last)
}

func cut(s string, n int) string { return s[:max(0, min(len(s), n))] }

// Link makes the link in dir point to logPath, and replaces an existing link of that name. It is idempotent.
func Link(dir string, name LinkName, logPath string) error {
	path := name.Path(dir)
	if old, err := os.Readlink(path); err == nil && old == logPath {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("link log: %w", err)
	}
	err := os.Symlink(logPath, path)
	if errors.Is(err, fs.ErrExist) {
		err = replaceLink(path, logPath)
	}
	if err != nil {
		return fmt.Errorf("link log: %w", err)
	}
	return nil
}

// replaceLink replaces a link atomically.
func replaceLink(path, target string) error {
	tmp := filepath.Join(filepath.Dir(path), ".monopod-"+fmt.Sprint(os.Getpid()))
	_ = os.Remove(tmp)
	if err := os.Symlink(target, tmp); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// Unlink removes the link. It is idempotent. A directory of that name is kept, because this package did not create it.
func Unlink(dir string, name LinkName) error {
	err := os.Remove(name.Path(dir))
	if info, serr := os.Lstat(name.Path(dir)); err != nil && serr == nil && info.IsDir() {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("unlink log: %w", err)
	}
	return nil
}
