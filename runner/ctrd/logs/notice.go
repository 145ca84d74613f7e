package logs

// NoticeKind is the kind of a Notice.
type NoticeKind int

const (
	// Dropping means that the log file of a container cannot be written, so its output is dropped. Sent at most once a minute.
	Dropping NoticeKind = iota
	// Resumed means that the log file can be written again.
	Resumed
	// Trimmed means that files were removed because all logs together were too large.
	Trimmed
)

// Notice is an event that concerns logs.
type Notice struct {
	Kind NoticeKind
	// Container is the container ID, for Dropping and Resumed; Path is its log file.
	Container, Path string
	// Lines is the number of dropped lines, for Resumed.
	Lines uint64
	// Err is the reason, for Dropping.
	Err error
	// Files and Bytes count the removed files and their size, for Trimmed.
	Files int
	Bytes int64
}
