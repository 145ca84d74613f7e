// Package oom follows processes that the kernel kills because memory is out. It reads /dev/kmsg, which needs no polling, and skips older
// messages. The text is parsed by pure functions; the pod of the victim is found by its cgroup. It must not change anything.
//
// Goroutines: none but the caller's; Watch blocks.
package oom

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Kill is a process that the kernel has killed.
type Kill struct {
	// Process is the name of the victim, as the kernel shows it; PID is its process id.
	Process string
	PID     int
	// System: the machine itself was out of memory, rather than a cgroup.
	System bool
	// Limit is the cgroup whose limit was hit.
	Limit string
	// Victim is the cgroup that the process was in; empty when the kernel did not say, as it does not when it kills many.
	Victim string
	// Group: the process was killed only because another of its cgroup was (memory.oom.group).
	Group bool
}

// Container is the id of the container that the victim was in, by the name of its cgroup; empty: none. It is the last part of
// the path that looks like an id, as whole directories and systemd scopes have it.
func (k Kill) Container() string {
	for dir := k.Victim; dir != "/" && dir != "." && dir != ""; dir = path.Dir(dir) {
		name := strings.TrimSuffix(path.Base(dir), ".scope")
		name = name[strings.LastIndexByte(name, '-')+1:]
		if len(name) == 64 && strings.Trim(name, "0123456789abcdef") == "" {
			return name
		}
	}
	return ""
}

// In reports whether the victim was in the cgroup of a pod, with either driver.
func (k Kill) In(uid string) bool {
	dir, slice := "pod"+uid, "-pod"+strings.ReplaceAll(uid, "-", "_")+".slice"
	for elem := range strings.SplitSeq(k.Victim, "/") {
		if elem == dir || strings.HasSuffix(elem, slice) {
			return uid != ""
		}
	}
	return false
}

// grouped is how long after its first victim the others of a group are killed at most. Of what comes later the kernel may just not have
// said whose it was.
const grouped = time.Second

// Parser assembles the lines of a kill: the cgroup comes before the victim. The zero Parser is ready.
type Parser struct {
	// next is the next victim as far as it is known; its PID is 0 until the kernel has named it.
	next Kill
	// group is the cgroup that is killed as a whole, as reported at that time.
	group string
	at    time.Duration
}

// Record takes one record of /dev/kmsg, and returns a kill when it is the last one of it.
func (p *Parser) Record(record string) (Kill, bool) {
	head, text, ok := strings.Cut(record, ";")
	if !ok {
		return Kill{}, false
	}
	text, _, _ = strings.Cut(text, "\n")
	switch {
	case strings.Contains(text, " invoked oom-killer: "):
		*p = Parser{}
	case strings.HasPrefix(text, "oom-kill:"):
		*p = Parser{next: constraint(strings.TrimPrefix(text, "oom-kill:"))}
	case strings.HasPrefix(text, "Task in "): // kernels before 5.0
		task, limit, ok := strings.Cut(strings.TrimPrefix(text, "Task in "), " killed as a result of limit of ")
		if ok {
			*p = Parser{next: Kill{Victim: task, Limit: limit}}
		}
	case strings.HasPrefix(text, "Tasks in "):
		if group, ok := strings.CutSuffix(strings.TrimPrefix(text, "Tasks in "), " are going to be killed due to memory.oom.group set"); ok {
			*p = Parser{group: group, at: said(head)}
		}
	case strings.Contains(text, "Killed process "):
		return p.killed(text, said(head))
	}
	return Kill{}, false
}

// killed is the last line of a kill.
func (p *Parser) killed(text string, at time.Duration) (Kill, bool) {
	pid, process, ok := victim(text)
	if !ok {
		return Kill{}, false
	}
	k := p.next
	p.next = Kill{}
	switch {
	case p.group != "" && at-p.at < grouped:
		k = Kill{Limit: p.group, Victim: p.group, Group: true}
	case k.PID != 0 && k.PID != pid:
		k = Kill{}
	}
	k.PID, k.Process = pid, process
	k.System = !strings.HasPrefix(text, "Memory cgroup ") && (k.Limit == "" || k.Limit == "/")
	return k, true
}

// said is the time of a record: `6,339,5140900,-` was logged after 5.1409 s.
func said(head string) time.Duration {
	fields := strings.SplitN(head, ",", 4)
	if len(fields) < 3 {
		return 0
	}
	microseconds, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(microseconds) * time.Microsecond
}

// constraint reads `constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=c,mems_allowed=0,oom_memcg=/a,task_memcg=/a/b,task=x,pid=5,uid=0`. A name
// of a process may have commas; it comes after the cgroups.
func constraint(text string) Kill {
	k := Kill{}
	if _, rest, ok := cutLast(text, ",pid="); ok {
		number, _, _ := strings.Cut(rest, ",")
		if pid, err := strconv.Atoi(number); err == nil {
			k.PID = pid
		}
	}
	for field := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(field, "=")
		switch name {
		case "task":
			return k
		case "oom_memcg":
			k.Limit = value
		case "task_memcg":
			k.Victim = value
		}
	}
	return k
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// victim reads `Memory cgroup out of memory: Killed process 123 (name) total-vm:...`. The name may have parentheses of its own.
func victim(text string) (pid int, process string, ok bool) {
	_, rest, _ := strings.Cut(text, "Killed process ")
	number, rest, _ := strings.Cut(rest, " (")
	end := strings.LastIndex(rest, ") total-vm:")
	if end < 0 {
		end = strings.LastIndexByte(rest, ')')
	}
	pid, err := strconv.Atoi(number)
	if err != nil || end < 0 {
		return 0, "", false
	}
	return pid, rest[:end], true
}

// Watch calls back for each kill from now on until ctx ends, or fails when the messages of the kernel cannot be read.
func Watch(ctx context.Context, file string, tell func(Kill)) error {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = f.Close() })
	defer func() {
		if stop() {
			_ = f.Close()
		}
	}()
	if _, err := f.Seek(0, io.SeekEnd); err != nil { // what was said before is passed over
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	p, buf := Parser{}, make([]byte, 8<<10)
	for {
		n, err := f.Read(buf)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, syscall.EPIPE): // messages were overwritten before they were read
			p = Parser{}
			continue
		case err != nil:
			return err
		}
		if k, ok := p.Record(string(buf[:n])); ok {
			tell(k)
		}
	}
}
