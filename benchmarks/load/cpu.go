package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// pids reads "12,34"; an empty string has none.
func pids(text string) ([]int, error) {
	var found []int
	for _, part := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' }) {
		pid, err := strconv.Atoi(part)
		if err != nil {
			return nil, fmt.Errorf("--cpu-of %q: process ids with commas between them expected", text)
		}
		found = append(found, pid)
	}
	return found, nil
}

// cpuSeconds returns the CPU time of each process over all threads. schedstat counts nanoseconds, where stat counts
// ticks of 10 ms. A process that has ended is an error, because its time would be missing.
func cpuSeconds(processes []int) (map[int]float64, error) {
	seconds := map[int]float64{}
	for _, pid := range processes {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		if err != nil || len(threads) == 0 {
			return nil, fmt.Errorf("process %d: no schedstat (%v)", pid, err)
		}
		for _, thread := range threads {
			text, err := os.ReadFile(thread)
			if err != nil {
				continue // the thread has just ended
			}
			nanoseconds, _ := strconv.ParseFloat(strings.Fields(string(text))[0], 64)
			seconds[pid] += nanoseconds / 1e9
		}
	}
	return seconds, nil
}

// cpuSince returns the CPU time of each process since an earlier reading.
func cpuSince(before map[int]float64) (map[int]float64, error) {
	var processes []int
	for pid := range before {
		processes = append(processes, pid)
	}
	after, err := cpuSeconds(processes)
	for pid := range after {
		after[pid] -= before[pid]
	}
	return after, err
}
