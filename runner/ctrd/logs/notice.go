package logs

// NoticeKind says what a Notice is about.
type NoticeKind int

const (
	// Dropping reports whether the log file of a container cannot be written, and its output is dropped. Told once a minute at most.
	Dropping NoticeKind = iota
	// Resumed reports whether it is written again.
	Resumed
	// Trimmed reports whether files were removed because all logs together were too large.
	Trimmed
)

// Notice is what the owner of the pods may want to tell about their logs.
type Notice struct {
	Kind NoticeKind
	// Container is the id, for Dropping and Resumed; Path is its log file.
	Container, Path string
	// Lines is how many were dropped, for Resumed.
	Lines uint64
	// Err is why, for Dropping.
	Err error
	// Files and Bytes are what was removed, for Trimmed.
	Files int
	Bytes int64
}
