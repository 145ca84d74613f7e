package config

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"monopod/internal/quantity"
	"monopod/runner/ctrd/logs"
)

// The default of podLogsMaxSize: a tenth of the file system, but never less than leastPodLogs.
const (
	podLogsShare = 10
	leastPodLogs = 64 << 20
)

// logKeys are the keys about the files with the output of containers.
func logKeys() []Key {
	return []Key{
		{Path: "containerLogMaxSize", Kind: kindString, def: "10Mi", doc: "Size at which a log file is rotated, as `10Mi`. No file gets larger, however fast a container writes. Negative: no limit."},
		{Path: "containerLogMaxFiles", Kind: kindInt, def: int64(5), doc: "Maximum number of log files of one container instance, including the current one; rotated files are compressed, except the newest. At least 2."},
		{Path: "podLogsMaxSize", Kind: kindString, derived: "a tenth of the file system of `podLogsDir`, at least 64Mi", doc: "Limit for the logs of all pods together, as `500Mi`. Above it, the oldest rotated files are removed first, then the largest current ones. Negative: no limit."},
	}
}

// logSizes checks the limits of logs, and of the content of objects.
func (c *configCheck) logSizes(cfg *Config) {
	for _, s := range [][2]string{{"containerLogMaxSize", cfg.ContainerLogMaxSize}, {"podLogsMaxSize", cfg.PodLogsMaxSize}, {"objectFilesMemory", cfg.ObjectFilesMemory}} {
		if s[1] == "" && s[0] == "podLogsMaxSize" {
			continue
		}
		if q, err := quantity.Parse(s[1]); err != nil || q.IsZero() {
			c.add(s[0], fmt.Sprintf("%q is not a size", s[1]), "write it as 10Mi, or \"-1\" for no limit")
		}
	}
	c.between("containerLogMaxFiles", cfg.ContainerLogMaxFiles, 2, 1000)
}

// LogLimits returns the limits of a valid configuration.
func LogLimits(cfg *Config) logs.Limits {
	l := logs.Limits{MaxSize: bytesOf(cfg.ContainerLogMaxSize), MaxFiles: cfg.ContainerLogMaxFiles, Total: bytesOf(cfg.PodLogsMaxSize)}
	if cfg.PodLogsMaxSize == "" {
		l.Total = max(leastPodLogs, diskSize(cfg.PodLogsDir)/podLogsShare)
	}
	return l
}

func bytesOf(text string) int64 {
	q, _ := quantity.Parse(text) // 0 if it is invalid
	return q.Value()
}

// diskSize returns the size of the file system of a directory, which need not exist yet; 0 if it cannot be read.
func diskSize(dir string) int64 {
	var st unix.Statfs_t
	for unix.Statfs(dir, &st) != nil {
		if dir == filepath.Dir(dir) {
			return 0
		}
		dir = filepath.Dir(dir)
	}
	return int64(st.Blocks * uint64(st.Bsize))
}
