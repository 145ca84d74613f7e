// hello is the program inside the images of examples/hello: one static binary with a few small jobs.
package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	job := ""
	if len(os.Args) > 1 {
		job = os.Args[1]
	}
	var err error
	switch job {
	case "web":
		err = web(os.Args[2])
	case "write":
		err = write(os.Args[2])
	case "show":
		err = show(os.Args[2])
	case "crash":
		err = errors.New("a crash on purpose: watch RESTARTS grow and the waits between them double")
	default:
		err = fmt.Errorf("usage: hello web ADDRESS | write FILE | show FILE | crash (got %q)", job)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "hello:", err)
		os.Exit(1)
	}
}

func stopped() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM, os.Interrupt)
	return c
}

// web answers with what the pod knows about itself.
func web(address string) error {
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fmt.Printf("%s %s from %s\n", r.Method, r.URL.Path, r.RemoteAddr)
		fmt.Fprintf(w, "%s\n\npod        %s/%s\naddress    %s\nnode       %s\nuid        %d\n",
			os.Getenv("GREETING"), os.Getenv("POD_NAMESPACE"), os.Getenv("POD_NAME"), os.Getenv("POD_IP"), os.Getenv("NODE_NAME"), os.Getuid())
	})
	failed := make(chan error, 1)
	go func() { failed <- http.ListenAndServe(address, nil) }()
	fmt.Println("listening on", address)
	select {
	case err := <-failed:
		return err
	case s := <-stopped():
		fmt.Println("good bye:", s)
		return nil
	}
}

// write puts the time into a file each second, show reads it: two containers and one emptyDir.
func write(file string) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for stop := stopped(); ; {
		if err := os.WriteFile(file, []byte(time.Now().Format(time.RFC3339)+"\n"), 0o644); err != nil {
			return err
		}
		select {
		case <-stop:
			return nil
		case <-tick.C:
		}
	}
}

func show(file string) error {
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for stop := stopped(); ; {
		if b, err := os.ReadFile(file); err == nil {
			fmt.Println("the other container wrote", strings.TrimSpace(string(b)))
		} else {
			fmt.Println("nothing yet:", err)
		}
		select {
		case <-stop:
			return nil
		case <-tick.C:
		}
	}
}
