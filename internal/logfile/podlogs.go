// Package logfile finds and reads the log files of containers.
//
// It must not write to them or depend on whether their pods run. It has no goroutines.
package logfile

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"monopod/node"
	"monopod/runner/ctrd/logs"
)

// Files implements node.Logs with the files that the runtime writes: <podLogsDir>/<ns>_<name>_<uid>/<container>/<n>.log, and a link to the
// file of each existing instance, named after the instance.
type Files struct {
	podLogsDir string
	linksDir   string
}

// New returns the log files below podLogsDir.
func New(podLogsDir string) Files {
	return Files{podLogsDir: podLogsDir, linksDir: ContainerLogsDir(podLogsDir)}
}

// ContainerLogsDir returns the directory of these links: next to the logs, like /var/log/containers next to /var/log/pods.
func ContainerLogsDir(podLogsDir string) string {
	return filepath.Join(filepath.Dir(podLogsDir), "containers")
}

// ReadLog implements node.Logs; both streams, unless one is chosen, go to w in the order in which they were written.
func (l Files) ReadLog(ctx context.Context, q node.LogQuery, w io.Writer) error {
	path, err := l.find(q)
	if err != nil {
		return err
	}
	o := logs.ReadOptions{Follow: q.Follow, Tail: q.Tail, Since: q.Since, Timestamps: q.Timestamps, LimitBytes: q.LimitBytes, Done: q.Ended}
	stdout, stderr := w, w
	switch q.Stream {
	case corev1.LogStreamStdout:
		stderr = nil
	case corev1.LogStreamStderr:
		stdout = nil
	}
	return logs.Read(ctx, path, o, stdout, stderr)
}

// find returns the log of an instance. The link decides, because the number of the file is the restart count or, after edits, higher. For
// an instance that is gone, it is the log before that of its successor, or the last one.
func (l Files) find(q node.LogQuery) (string, error) {
	if path, ok := l.linked(q, q.Instance.ID); ok {
		return path, nil
	}
	dir := filepath.Join(logs.PodDir(l.podLogsDir, q.Pod.Namespace, q.Pod.Name, string(q.Pod.UID)), q.Instance.Container)
	limit := -1
	if path, ok := l.linked(q, q.Instance.Successor); ok {
		limit = logs.NumberOf(filepath.Base(path))
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("find log: %w", err)
	}
	best := -1
	for _, e := range entries {
		if n := logs.NumberOf(e.Name()); n > best && (limit < 0 || n < limit) {
			best = n
		}
	}
	if best < 0 {
		return "", fmt.Errorf("find log: no log of container %s in %s", q.Instance.Container, dir)
	}
	return filepath.Join(dir, strconv.Itoa(best)+".log"), nil
}

func (l Files) linked(q node.LogQuery, id string) (string, bool) {
	if id == "" {
		return "", false
	}
	name := logs.LinkName{Pod: q.Pod.Name, Namespace: q.Pod.Namespace, Container: q.Instance.Container, ID: id}
	path, err := os.Readlink(name.Path(l.linksDir))
	return path, err == nil
}
