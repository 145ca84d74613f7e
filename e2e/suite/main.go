// Command suite provides what the images of Kubernetes' end-to-end suite contain in addition to busybox and agnhost, as far as its specs
// use it. Depending on the name by which it is called, it is curl, nc, pause or sh.
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	var err error
	switch name := filepath.Base(os.Args[0]); name {
	case "curl":
		err = curl(os.Args[1:], os.Stdout)
	case "nc":
		err = netcat(os.Args[1:], os.Stdin, os.Stdout)
	case "sh":
		err = shell(os.Args[1:], os.Stdout)
	case "pause":
		stop := make(chan os.Signal, 1)
		signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
		<-stop
	default:
		err = fmt.Errorf("no program is called %s", name)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(7)
	}
}

// shell is busybox's, which keeps variables to itself whose names are none of a shell: what asks for all of them gets all of them.
// It keeps the path that it was called by, which begins its error messages. It prefers its own nc, which does not know UDP, to any in PATH,
// but not to a function.
func shell(args []string, out io.Writer) error {
	if slices.Equal(args, []string{"-c", "env"}) {
		_, err := fmt.Fprintln(out, strings.Join(os.Environ(), "\n"))
		return err
	}
	if len(args) > 1 && args[0] == "-c" && strings.Contains(args[1], "nc -") {
		args = slices.Clone(args)
		args[1] = `nc() { /usr/local/bin/nc "$@"; }; ` + args[1]
	}
	return syscall.Exec("/bin/busybox", append([]string{os.Args[0]}, args...), os.Environ())
}

// options splits a command line into options, those in takes with the following word, and the rest.
func options(args []string, takes ...string) (opts map[string]string, rest []string) {
	opts = map[string]string{}
	for i := 0; i < len(args); i++ {
		name, value, joined := strings.Cut(args[i], "=")
		switch {
		case !strings.HasPrefix(name, "-"):
			rest = append(rest, args[i])
		case slices.Contains(takes, name) && !joined && i+1 < len(args):
			i++
			opts[name] = args[i]
		default:
			opts[name] = value
		}
	}
	return opts, rest
}

// curl fetches a URL. It supports -o FILE, -w with %{http_code}, -i, --max-time and --connect-timeout, and ignores other options.
func curl(args []string, out io.Writer) error {
	opts, rest := options(args, "-o", "-w", "--max-time", "--connect-timeout", "-m", "-X", "-H", "-d")
	if len(rest) != 1 {
		return errors.New("usage: curl [OPTIONS] URL")
	}
	url := rest[0]
	if !strings.Contains(url, "://") {
		url = "http://" + url
	}
	limit := 15 * time.Second
	for _, o := range []string{"-m", "--max-time"} {
		if n, err := strconv.ParseFloat(opts[o], 64); err == nil {
			limit = time.Duration(n * float64(time.Second))
		}
	}
	res, err := (&http.Client{Timeout: limit}).Get(url)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if _, ok := opts["-i"]; ok {
		fmt.Fprintf(out, "HTTP/1.1 %s\r\n", res.Status)
		if err := res.Header.Write(out); err != nil {
			return err
		}
		fmt.Fprint(out, "\r\n")
	}
	if file := opts["-o"]; file != "" {
		err = os.WriteFile(file, body, 0o600)
	} else {
		_, err = out.Write(body)
	}
	if format, ok := opts["-w"]; ok {
		fmt.Fprint(out, strings.ReplaceAll(format, "%{http_code}", strconv.Itoa(res.StatusCode)))
	}
	return err
}

// netcat sends its input to HOST PORT and prints the answer: -u selects UDP, -w SECONDS the idle timeout.
func netcat(args []string, in io.Reader, out io.Writer) error {
	opts, rest := options(args, "-w")
	if len(rest) != 2 {
		return errors.New("usage: nc [-u] [-w SECONDS] HOST PORT")
	}
	wait := 10 * time.Second
	if n, err := strconv.Atoi(opts["-w"]); err == nil {
		wait = time.Duration(n) * time.Second
	}
	network := "tcp"
	if _, ok := opts["-u"]; ok {
		network = "udp"
	}
	conn, err := net.DialTimeout(network, net.JoinHostPort(rest[0], rest[1]), wait)
	if err != nil {
		return err
	}
	defer conn.Close()
	text, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	if _, err := conn.Write(text); err != nil {
		return err
	}
	buf := make([]byte, 64<<10)
	for {
		if err := conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
			return err
		}
		n, err := conn.Read(buf)
		if _, failed := out.Write(buf[:n]); failed != nil {
			return failed
		}
		if err != nil {
			return nil // it has ended, or nothing more comes
		}
	}
}
