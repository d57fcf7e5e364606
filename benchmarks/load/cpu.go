package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// cpuTimes are the CPU seconds that processes have had. Total counts nanoseconds (schedstat of every thread); User and
// System say how it splits, in the kernel's ticks of 10 ms.
type cpuTimes struct {
	Total  float64 `json:"total"`
	User   float64 `json:"user"`
	System float64 `json:"system"`
}

// pids reads "12,34"; an empty string is nobody.
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

// cpuOf sums over processes; one that has gone is an error, since its time would be missing.
func cpuOf(processes []int) (cpuTimes, error) {
	var sum cpuTimes
	for _, pid := range processes {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return sum, err
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		user, _ := strconv.ParseFloat(fields[11], 64)
		system, _ := strconv.ParseFloat(fields[12], 64)
		sum.User += user / 100
		sum.System += system / 100
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		if err != nil || len(threads) == 0 {
			return sum, fmt.Errorf("process %d: no schedstat (%v)", pid, err)
		}
		for _, thread := range threads {
			text, err := os.ReadFile(thread)
			if err != nil {
				continue // the thread ended between the two looks
			}
			nanoseconds, _ := strconv.ParseFloat(strings.Fields(string(text))[0], 64)
			sum.Total += nanoseconds / 1e9
		}
	}
	return sum, nil
}

// cpuOfEach is cpuOf for one process at a time.
func cpuOfEach(processes []int) (map[int]cpuTimes, error) {
	each := map[int]cpuTimes{}
	for _, pid := range processes {
		times, err := cpuOf([]int{pid})
		if err != nil {
			return nil, err
		}
		each[pid] = times
	}
	return each, nil
}

func (c cpuTimes) since(before cpuTimes) cpuTimes {
	return cpuTimes{c.Total - before.Total, c.User - before.User, c.System - before.System}
}
