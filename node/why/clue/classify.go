package clue

import (
	"regexp"
	"slices"
	"strconv"
)

// Words of programs that find their port taken, and where they say which.
var (
	inUse     = regexp.MustCompile(`(?i)address (?:already )?in use|EADDRINUSE|port \d+ is (?:already )?(?:in use|allocated)`)
	portWords = regexp.MustCompile(`(?i)(?:port[ =:]+|[\]\d*\s]:|:::|0\.0\.0\.0:|\*:)(\d{1,5})\b`)
)

// PortTaken finds in the output of a program that a port was taken, and which; 0: it does not say.
func PortTaken(lines []string) (int, bool) {
	for _, line := range slices.Backward(lines) {
		if !inUse.MatchString(line) {
			continue
		}
		for _, m := range portWords.FindAllStringSubmatch(line, -1) {
			if n, err := strconv.Atoi(m[1]); err == nil && n > 0 && n < 1<<16 {
				return n, true
			}
		}
		return 0, true
	}
	return 0, false
}
