package netinfo

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
)

// Listener is a socket of this machine that waits for connections or datagrams.
type Listener struct {
	// Protocol is TCP or UDP.
	Protocol string
	// Addr may be that of all addresses.
	Addr netip.AddrPort
	// PID and Name are those of a process that has it; 0 when none can be seen.
	PID  int
	Name string
	// Cgroup is that of the process, as in /proc/PID/cgroup.
	Cgroup string
}

// table is one of the kernel's lists of sockets, and the state in which its sockets wait.
type table struct{ file, protocol, state string }

func tables() []table {
	return []table{{"tcp", "TCP", "0A"}, {"tcp6", "TCP", "0A"}, {"udp", "UDP", "07"}, {"udp6", "UDP", "07"}}
}

// Listeners returns the sockets that wait on ports which wanted names, and the processes that have them, as proc (/proc)
// shows them at this moment for the network of a process; 0: the caller's. It reads all of proc, which takes some
// milliseconds.
func Listeners(proc string, pid int, wanted func(port int) bool) ([]Listener, error) {
	of := "self"
	if pid > 0 {
		of = strconv.Itoa(pid)
	}
	found := map[string]Listener{}
	for _, t := range tables() {
		if err := readTable(filepath.Join(proc, of, "net", t.file), t.state, func(addr netip.AddrPort, inode string) {
			if wanted(int(addr.Port())) {
				found[inode] = Listener{Protocol: t.protocol, Addr: addr}
			}
		}); err != nil && !os.IsNotExist(err) {
			return nil, fmt.Errorf("list sockets: %w", err)
		}
	}
	if len(found) == 0 {
		return nil, nil
	}
	owners(proc, found)
	var all []Listener
	for _, l := range found {
		all = append(all, l)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].String() < all[j].String() })
	return all, nil
}

// String is the socket with its process.
func (l Listener) String() string {
	return fmt.Sprintf("%s %s %d %s", l.Protocol, l.Addr, l.PID, l.Name)
}

// readTable calls each with the sockets of one table that are in the state.
func readTable(file, state string, each func(netip.AddrPort, string)) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 || fields[3] != state {
			continue
		}
		if addr, ok := parseSocket(fields[1]); ok {
			each(addr, fields[9])
		}
	}
	return lines.Err()
}

// parseSocket reads an address as the kernel prints it: words of four bytes in the order of the machine, and the port.
func parseSocket(text string) (netip.AddrPort, bool) {
	host, port, ok := strings.Cut(text, ":")
	b, err := hex.DecodeString(host)
	n, portErr := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil || portErr != nil || len(b)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	addr, ok := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(addr.Unmap(), uint16(n)), ok
}

// owners fills in the processes of sockets, by inode. Processes come and go meanwhile: what cannot be read is not there.
func owners(proc string, found map[string]Listener) {
	processes, _ := filepath.Glob(filepath.Join(proc, "[0-9]*"))
	for _, dir := range processes {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		fds, _ := os.ReadDir(filepath.Join(dir, "fd"))
		for _, fd := range fds {
			link, err := os.Readlink(filepath.Join(dir, "fd", fd.Name()))
			if err != nil {
				continue
			}
			inode, isSocket := strings.CutPrefix(link, "socket:[")
			inode = strings.TrimSuffix(inode, "]")
			if l, ok := found[inode]; isSocket && ok && l.PID == 0 {
				l.PID, l.Name, l.Cgroup = pid, fileText(dir, "comm"), fileText(dir, "cgroup")
				found[inode] = l
			}
		}
	}
}

func fileText(dir, name string) string {
	b, _ := os.ReadFile(filepath.Join(dir, name))
	return strings.TrimSpace(string(b))
}

// ProcessIn returns a process whose cgroup has word in its name, such as the id of a container; 0: there is none.
func ProcessIn(proc, word string) int {
	processes, _ := filepath.Glob(filepath.Join(proc, "[0-9]*"))
	for _, dir := range processes {
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && strings.Contains(fileText(dir, "cgroup"), word) {
			return pid
		}
	}
	return 0
}
