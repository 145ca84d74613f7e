package fields

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Conditions are met if all of them are.
type Conditions []Condition

// Condition is a word with arguments, for example "exit 3"; "!" negates it, and " | " separates alternatives.
type Condition string

// Met reports whether all conditions are met.
func (c Conditions) Met(s *Seen) bool {
	for _, one := range c {
		if !one.met(s) {
			return false
		}
	}
	return true
}

func (c Condition) met(s *Seen) bool {
	return slices.ContainsFunc(strings.Split(string(c), " | "), func(one string) bool {
		one, not := strings.CutPrefix(one, "!")
		word, args, _ := strings.Cut(one, " ")
		return vocabulary()[word](s, args) != not
	})
}

// check returns an error if a word is unknown.
func (c Condition) check() error {
	for one := range strings.SplitSeq(string(c), " | ") {
		word, _, _ := strings.Cut(strings.TrimPrefix(one, "!"), " ")
		if vocabulary()[word] == nil {
			return fmt.Errorf("unknown condition %q", word)
		}
	}
	return nil
}

// vocabulary has the words of conditions. Without a container as argument, they are about container c.
func vocabulary() map[string]func(s *Seen, args string) bool {
	return map[string]func(s *Seen, args string) bool{
		"phase":       func(s *Seen, a string) bool { return s.Pod != nil && string(s.Pod.Status.Phase) == a },
		"reason":      func(s *Seen, a string) bool { return s.Pod != nil && s.Pod.Status.Reason == a },
		"pod-message": func(s *Seen, a string) bool { return s.Pod != nil && s.Pod.Status.Message == a },
		"ready":       func(s *Seen, _ string) bool { return s.Ready() },
		"gone":        func(s *Seen, _ string) bool { return s.Pod == nil && s.Before != nil },

		"container":       func(s *Seen, a string) bool { return s.status(a).Name != "" },
		"container-ready": func(s *Seen, a string) bool { return s.status(a).Ready },
		"running":         func(s *Seen, a string) bool { return s.status(a).State.Running != nil },
		"terminated":      func(s *Seen, a string) bool { return s.status(a).State.Terminated != nil },
		"restarted":       func(s *Seen, a string) bool { return s.status(a).RestartCount > 0 },
		"restarts": func(s *Seen, a string) bool {
			name, n, _ := strings.Cut(a, " ")
			return int(s.status(name).RestartCount) == number(n)
		},
		"memory-limit": func(s *Seen, a string) bool {
			r := s.status("c").Resources
			return r != nil && r.Limits.Memory().String() == a
		},

		"ended":           func(s *Seen, _ string) bool { return s.ended() != nil },
		"exit":            func(s *Seen, a string) bool { return s.ended() != nil && int(s.ended().ExitCode) == number(a) },
		"message":         func(s *Seen, a string) bool { return s.ended() != nil && s.ended().Message == a },
		"log":             func(s *Seen, a string) bool { return s.Log("c") == a },
		"waits":           func(s *Seen, a string) bool { return s.waiting().Reason == a },
		"waiting-message": func(s *Seen, a string) bool { return strings.Contains(s.waiting().Message, a) },

		"exists": func(s *Seen, a string) bool { _, err := os.Stat(filepath.Join(s.Dir, a)); return err == nil },
		"file": func(s *Seen, a string) bool {
			name, text, _ := strings.Cut(a, " ")
			return s.file(name) == text
		},

		"requests":       func(s *Seen, a string) bool { return len(s.Requests) >= number(a) },
		"other-requests": func(s *Seen, a string) bool { return len(s.Requests2) >= number(a) },
		"request":        func(s *Seen, a string) bool { return len(s.Requests) > 0 && s.Requests[0].is(a) },
		"took":           func(s *Seen, a string) bool { return len(s.Requests) > 0 && s.Requests[0].Took > duration(a) },
		"interval": func(s *Seen, a string) bool {
			return len(s.Requests) > 1 && s.Requests[1].At.Sub(s.Requests[0].At) < duration(a)
		},
		"after-other": func(s *Seen, a string) bool {
			return len(s.Requests) > 0 && len(s.Requests2) > 0 && s.Requests[0].At.Sub(s.Requests2[0].At) > duration(a)
		},
		"after-action": func(s *Seen, a string) bool {
			return len(s.Requests) > 0 && s.Requests[0].At.Sub(s.ActedAt) > duration(a)
		},
		"since-request": func(s *Seen, a string) bool { return len(s.Requests) > 0 && s.Now.Sub(s.Requests[0].At) > duration(a) },

		"connects":      connects,
		"namespace":     inNamespace,
		"qdisc-known":   func(s *Seen, a string) bool { return s.qdiscs(a) != "" },
		"qdisc-limited": func(s *Seen, a string) bool { return strings.Contains(s.qdiscs(a), "rate "+s.FreePort+"1Kbit") },
	}
}

// is reports whether the request has the kind that the row sends.
func (r *Request) is(kind string) bool {
	switch kind {
	case "right":
		return r.To == "127.0.0.1" && r.URI == "/right" && r.TLS && r.Proto == 1 && r.Header.Get("X-Row") == "right"
	case "grpc":
		return r.URI == "/grpc.health.v1.Health/Check" && strings.Contains(r.Body, "right") && r.TLS && r.Proto == 2
	case "http2":
		return r.Proto == 2
	}
	return r.Method == "" && r.To == "127.0.0.1" // tcp
}

// connects reports whether a TCP connection to a host and port succeeds.
func connects(s *Seen, args string) bool {
	host, port, _ := strings.Cut(args, " ")
	if port == "FREEPORT" {
		port = s.FreePort
	}
	switch {
	case host == "pod-ip" && s.Pod != nil:
		host = s.Pod.Status.PodIP
	case host == "host-ip" && s.Pod != nil:
		host = s.Pod.Status.HostIP
	}
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(host, port), time.Second)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// inNamespace compares the namespace in the termination message of container c with that of this process: "net host" or "user own".
func inNamespace(s *Seen, args string) bool {
	kind, whose, _ := strings.Cut(args, " ")
	host, err := os.Readlink("/proc/self/ns/" + kind)
	if err != nil || s.ended() == nil || s.ended().Message == "" {
		return false
	}
	return (s.ended().Message == host+"\n") == (whose == "host")
}

// qdiscs returns the queueing disciplines of the host, or of the pod with the process in the file pid; empty if they are unknown.
func (s *Seen) qdiscs(where string) string {
	args := []string{"tc", "qdisc", "show"}
	if where == "pod" {
		pid := s.file("pid")
		if pid == "" {
			return ""
		}
		args = append([]string{"nsenter", "--target", pid, "--net"}, args...)
	}
	out, err := exec.CommandContext(context.Background(), args[0], args[1:]...).Output()
	if err != nil {
		return ""
	}
	return string(out) + "\n"
}

// status returns the status of a container of any kind; empty if there is none.
func (s *Seen) status(container string) corev1.ContainerStatus {
	if s.Pod != nil {
		for _, c := range slices.Concat(s.Pod.Status.InitContainerStatuses, s.Pod.Status.ContainerStatuses) {
			if c.Name == container {
				return c
			}
		}
	}
	return corev1.ContainerStatus{}
}

// waiting returns the waiting state of container c; empty if it does not wait.
func (s *Seen) waiting() corev1.ContainerStateWaiting {
	if w := s.status("c").State.Waiting; w != nil {
		return *w
	}
	return corev1.ContainerStateWaiting{}
}

// ended returns the terminated state of container c; nil before it ends.
func (s *Seen) ended() *corev1.ContainerStateTerminated { return s.status("c").State.Terminated }

// Ready reports whether the pod is Ready.
func (s *Seen) Ready() bool {
	return s.Pod != nil && slices.ContainsFunc(s.Pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// file returns the content of a file in Dir without surrounding spaces; empty if there is none.
func (s *Seen) file(name string) string {
	b, _ := os.ReadFile(filepath.Join(s.Dir, name))
	return strings.TrimSpace(string(b))
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err) // a file of this package
	}
	return n
}

func duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err) // a file of this package
	}
	return d
}
