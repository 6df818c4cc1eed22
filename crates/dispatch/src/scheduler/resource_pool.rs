//! What is free of a worker's named resource, instance by instance.
//!
//! The server and the worker divide a resource by the same rules. A fraction is a part of one instance:
//! the one with the least left that suffices, so that whole ones stay free.

use longshore::ResourceAmount;

use super::obstacle::MEMORY;

const WHOLE: u64 = ResourceAmount::WHOLE;

/// A resource of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourcePool {
    /// Free hundredths of each instance. Memory is one instance of its whole amount.
    free: Vec<u64>,
    is_divisible: bool,
}

/// Parts of instances, by their number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceShare(Vec<(usize, u64)>);

impl ResourceShare {
    /// The numbers of the instances.
    pub fn instances(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().map(|(instance, _)| *instance)
    }
}

/// Of a larger amount, as of disk space, the instances are not told apart.
const MAX_INSTANCES: u32 = 1_024;

impl ResourcePool {
    /// Whether its instances are not told apart.
    pub fn is_divisible(&self) -> bool {
        self.is_divisible
    }

    /// A resource of which everything is free.
    pub fn new(name: &str, amount: u32) -> Self {
        let is_divisible = name == MEMORY || amount > MAX_INSTANCES;
        let free = match is_divisible {
            true => vec![u64::from(amount) * WHOLE],
            false => vec![WHOLE; amount as usize],
        };
        Self { free, is_divisible }
    }

    /// How much a task with this request could get.
    pub fn available(&self, needs: ResourceAmount) -> ResourceAmount {
        if self.is_divisible {
            return self.free();
        }
        let part = needs.hundredths() % WHOLE;
        let whole = self.free.iter().filter(|free| **free == WHOLE).count() as u64 * WHOLE;
        if part == 0 {
            return ResourceAmount::from_hundredths(whole);
        }
        let best = self.free.iter().filter(|free| **free < WHOLE).max().copied().unwrap_or(0);
        match best >= part {
            true => ResourceAmount::from_hundredths(whole + best),
            // A whole instance is divided for the fraction.
            false => ResourceAmount::from_hundredths(whole.max(best)),
        }
    }

    /// What no task occupies, in whole or in part.
    pub fn free(&self) -> ResourceAmount {
        ResourceAmount::from_hundredths(self.free.iter().sum())
    }

    /// Whether a task with this request can get it.
    pub fn suffices(&self, needs: ResourceAmount) -> bool {
        self.available(needs) >= needs
    }

    /// Takes as much of the request as there is.
    pub fn take(&mut self, needs: ResourceAmount) -> ResourceShare {
        let mut share = ResourceShare::default();
        if self.is_divisible {
            for (instance, free) in self.free.iter_mut().enumerate() {
                let taken = needs.hundredths().min(*free);
                *free -= taken;
                share.0.push((instance, taken));
            }
            return share;
        }
        let whole = usize::try_from(needs.hundredths() / WHOLE).unwrap_or(usize::MAX);
        let wholes = self.free.iter_mut().enumerate().filter(|(_, free)| **free == WHOLE).take(whole);
        for (instance, free) in wholes {
            *free = 0;
            share.0.push((instance, WHOLE));
        }
        let part = needs.hundredths() % WHOLE;
        let suffices = self.free.iter_mut().enumerate().filter(|(_, free)| **free >= part);
        if let Some((instance, free)) = suffices.min_by_key(|(_, free)| **free).filter(|_| part > 0) {
            *free -= part;
            share.0.push((instance, part));
        }
        share
    }

    /// Gives a share back.
    pub fn give_back(&mut self, share: &ResourceShare) {
        for (instance, amount) in &share.0 {
            if let Some(free) = self.free.get_mut(*instance) {
                *free += amount;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(text: &str) -> ResourceAmount {
        text.parse().unwrap()
    }

    fn instances(share: &ResourceShare) -> Vec<usize> {
        share.instances().collect()
    }

    #[test]
    fn of_a_large_amount_the_instances_are_not_told_apart() {
        let mut pool = ResourcePool::new("disk", u32::MAX);
        let share = pool.take(amount("4000000000"));
        assert!(pool.is_divisible() && !pool.suffices(amount("4000000000")));
        pool.give_back(&share);
        assert_eq!(pool.free(), ResourceAmount::whole(u32::MAX));
    }

    #[test]
    fn fractions_share_an_instance_and_whole_ones_stay_free() {
        let mut pool = ResourcePool::new("gpu", 2);
        let (half, most) = (pool.take(amount("0.5")), pool.take(amount("0.4")));
        assert_eq!((instances(&half), instances(&most)), (vec![0], vec![0]));
        assert!(pool.suffices(amount("1")) && !pool.suffices(amount("1.5")));
        assert!(pool.suffices(amount("1.1")));
        let whole = pool.take(amount("1"));
        assert_eq!(instances(&whole), [1]);
        assert!(!pool.suffices(amount("0.5")), "0.1 is left");
        assert_eq!(pool.available(amount("0.5")).to_string(), "0.1");
        pool.give_back(&half);
        assert!(pool.suffices(amount("0.6")) && !pool.suffices(amount("0.7")));
        pool.give_back(&most);
        pool.give_back(&whole);
        assert_eq!(pool, ResourcePool::new("gpu", 2));
    }

    #[test]
    fn a_fraction_is_never_put_together_from_two_instances() {
        let mut pool = ResourcePool::new("gpu", 2);
        let shares = [pool.take(amount("0.6")), pool.take(amount("0.6"))];
        assert_eq!(shares.each_ref().map(instances), [[0], [1]]);
        assert!(!pool.suffices(amount("0.5")) && pool.suffices(amount("0.4")));
    }

    #[test]
    fn memory_is_one_amount() {
        let mut memory = ResourcePool::new(MEMORY, 64_000);
        let share = memory.take(amount("50000"));
        assert!(memory.suffices(amount("14000")) && !memory.suffices(amount("14001")));
        memory.give_back(&share);
        assert!(memory.suffices(amount("64000")));
    }
}
